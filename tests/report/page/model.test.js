// The scripts' own answers against Python's: `tests/report/test_model.py` writes the cases and runs
// this with node, on the modules as they are and on the bundle that goes into the page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const { HLOMEM_CASES: casesPath = "", HLOMEM_SCRIPTS: scripts = "" } = process.env;
const cases = JSON.parse(readFileSync(casesPath, "utf8"));
const { formats, front_layout: front, layout, model } = await import(scripts);

test("bytes are written as Python writes them", () => {
  for (const [size, text] of cases.bytes) assert.equal(formats.formatBytes(size), text);
});

test("changes are written as Python writes them", () => {
  for (const [part, whole, text] of cases.changes) {
    assert.equal(formats.formatChange(part, whole), text.replace("%", " %"));
  }
});

test("a front has its stairs, and the nearest point is found", () => {
  for (const { points, limit, room, stairs, asked } of cases.fronts) {
    assert.equal(front.roomFor(points, limit), room);
    assert.deepEqual(front.stairsOf(points), stairs);
    const scale = front.scaleOf(points, room);
    for (const point of points) {
      const { x, y } = front.placeOf(point, scale);
      assert.ok(x >= 0 && x <= 1 && y >= 0 && y < 1);
    }
    for (const { x, y, nearest } of asked) {
      const at = { x: x * 1000, y: y * 1000 };
      const flat = { low: 0, high: 1, top: 1000 };
      assert.equal(front.nearestTo(points, flat, at, { width: 1000, height: 1000 }, 1e9), nearest);
    }
    assert.equal(
      front.nearestTo(points, scale, { x: -50, y: -50 }, { width: 9, height: 9 }, 4),
      -1,
    );
  }
});

test("ticks are round, few, and within the scale", () => {
  for (const [low, high] of cases.scales) {
    const ticks = front.ticksOf({ low, high, top: 1 });
    assert.ok(ticks.length >= 2 && ticks.length <= 7);
    for (const tick of ticks) assert.ok(tick >= low - 1e-9 && tick <= high + 1e-9);
    const [step] = (ticks[1] - ticks[0]).toExponential(6).split("e");
    assert.ok([1, 2, 5].includes(Number(step)));
  }
});

test("a tick has no needless zeros", () => {
  assert.equal(formats.formatTick(512 * 2 ** 20), "512 MiB");
  assert.equal(formats.formatTick(1.5 * 2 ** 30), "1.5 GiB");
  assert.equal(formats.formatTick(1000), "1000 B");
});

test("the middle of a long text is left out", () => {
  assert.equal(formats.shorten("abcdef", 6), "abcdef");
  assert.equal(formats.shorten("abcdefgh", 6), "abc…fgh");
});

test("each range takes the bytes nobody had", () => {
  for (const { ranges, taken } of cases.ranges) {
    const held = [];
    assert.deepEqual(
      ranges.map(([from, to]) => model.take(held, from, to)),
      taken,
    );
    for (let at = 1; at < held.length; at++) assert.ok(held[at - 1][1] < held[at][0]);
  }
});

for (const { name, page, spaces } of cases.dumps) {
  const report = new model.Report(page);
  const idOf = (i) => (i === model.NONE ? null : report.buffers.id[i]);

  test(`${name}: layers add up as in Python`, () => {
    spaces.forEach(({ heights }, number) => {
      const found = report.spaces[number].heights.map((layer) => [...layer]);
      assert.deepEqual(found, heights);
    });
  });

  for (const [number, { moments }] of spaces.entries()) {
    for (const moment of moments) {
      const where = `${name}: space ${number}, step ${moment.step}`;
      const alive = report.share(number, moment.step);

      test(`${where}: bytes belong to the same buffers`, () => {
        assert.deepEqual(
          alive.map(([i, size]) => [idOf(i), size]),
          moment.alive,
        );
        assert.equal(report.total(number, moment.step), moment.size);
      });

      for (const by of ["line", "op"]) {
        test(`${where}: groups by ${by} are the same`, () => {
          const rows = model.grouped(report, alive, by);
          const found = rows.map(({ key, size, count, largest }) => {
            return [key, size, count, report.nameOf(largest)];
          });
          assert.deepEqual(found, moment[by]);
        });
      }

      test(`${where}: a tree of lines has the bytes of the lines`, () => {
        const tree = model.tree(report, alive, "source");
        const hasLines = alive.some(([i]) => report.buffers.source[i] !== model.NONE);
        for (const [key, size] of hasLines ? moment.line : []) {
          assert.equal(findLine(tree, key)?.size, size);
        }
      });

      for (const hierarchy of ["source", "scope"]) {
        test(`${where}: parts of the tree by ${hierarchy} add up`, () => {
          const tree = model.tree(report, alive, hierarchy);
          assert.equal(tree.size, moment.size);
          const leaves = new Map(leavesOf(tree).map((leaf) => [idOf(leaf.buffer), leaf.size]));
          assert.deepEqual(leaves, new Map(moment.alive));
        });
      }

      test(`${where}: the map names who holds a byte`, () => {
        for (const [byte, id] of moment.holders) {
          assert.equal(idOf(layout.bufferAt(report, number, "", moment.step, byte)), id);
        }
      });
    }
  }
}

function findLine(tree, key) {
  const cut = key.lastIndexOf(":");
  return cut > 0
    ? tree.children.get(key.slice(0, cut))?.children.get(`line ${key.slice(cut + 1)}`)
    : tree.children.get(key);
}

/** The leaves; on the way to them every node is the sum of its children. */
function leavesOf(node) {
  const children = [...node.children.values()];
  if (!children.length) return node.buffer === model.NONE ? [] : [node];
  const sum = children.reduce((total, child) => total + child.size, 0);
  assert.equal(sum, node.size);
  return children.flatMap(leavesOf);
}
