"""The report in a real browser: what a person does with it, and what it shows."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

import hlomem
from hlomem.cli import main
from hlomem.report.data.roles import ROLES
from hlomem.report.page.html import format_page
from tests.browser.conftest import Shown
from tests.browser.many import ONE, many_buffers
from tests.places import GOLDENS

Show = Callable[..., Shown]
LOOPS = GOLDENS / "xla/jaxlib-0.12.0.1/cpu/nested_while"
TPU = min((GOLDENS / "xla").glob("libtpu-*/tpu-*/*"))
SEED = next((GOLDENS / "seeds").glob("003*"))


def _json(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    loaded: dict[str, Any] = json.loads(capsys.readouterr().out)
    return loaded


@pytest.mark.parametrize("path", [SEED, LOOPS, TPU], ids=["seed", "loops", "tpu"])
def test_figures_are_those_of_the_commands(
    path: Path, show: Show, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = show(path)
    summary = _json(capsys, "summary", path)
    space = shown.ask("hlomem.space()")
    assert isinstance(space, dict)
    assert space["size"] == summary["space"]["size"]
    assert space["roles"] == summary["roles"]
    assert space["peak"]["step"] == summary["peak"]["step"]
    for step in {0, space["peak"]["step"], summary["peak"]["steps"]}:
        alive = _json(capsys, "peak", path, "--at", str(step))
        shown.ask(f"hlomem.moveTo({step})")
        assert shown.ask(f"hlomem.report().total(hlomem.state.space, {step})") == alive["size"]
        owned = shown.ask(
            f"hlomem.report().alive(hlomem.state.space, {step})"
            ".map(([i, size]) => [hlomem.report().nameOf(i), size])"
        )
        assert isinstance(owned, list)
        assert sorted(map(tuple, owned)) == sorted(
            (row["largest"], row["size"]) for row in alive["rows"] if row["size"]
        )


def test_the_page_adds_one_name_to_the_window(show: Show) -> None:
    added = show(LOOPS).ask(
        """(() => {
          const frame = document.body.appendChild(document.createElement("iframe"));
          const usual = new Set(Object.getOwnPropertyNames(frame.contentWindow));
          frame.remove();
          return Object.getOwnPropertyNames(window).filter((name) => /^[a-z$]/i.test(name) &&
            !usual.has(name));
        })()"""
    )
    assert isinstance(added, list)
    assert {name for name in added if not name.startswith("__")} == {"hlomem"}


def test_names_of_the_scripts_are_their_own(show: Show) -> None:
    shown = show(LOOPS)
    for name in ("modules", "state", "report", "$", "formatBytes", "Report", "draw"):
        assert shown.ask(f"typeof {name}") == "undefined"


def test_every_role_is_drawn_in_its_colour(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    shown = show(SEED)
    shares = _json(capsys, "summary", SEED)["roles"]
    drawn = shown.ask(
        "[...document.querySelectorAll('#legend .swatch')].map(each => each.style.background)"
    )
    colour_of = {role.name: role.colour for role in ROLES}
    wanted = [tuple(bytes.fromhex(colour_of[share["role"]][1:])) for share in shares]
    assert drawn == [f"rgb{rgb}" for rgb in wanted]


def test_a_click_on_the_skyline_moves_the_cursor_everywhere(show: Show) -> None:
    shown = show(LOOPS)
    before = shown.text("moment")
    shown.page.click("#skyline", position={"x": 120, "y": 100})
    step = shown.ask("hlomem.state.step")
    assert isinstance(step, int)
    assert f"instruction {step}" in shown.text("moment")
    assert shown.text("moment") != before
    shown.page.click("text=Source lines")
    assert f"at instruction {step}" in shown.text("table-note")
    shown.page.keyboard.press("ArrowRight")
    assert shown.ask("hlomem.state.step") == step + 1
    shown.page.keyboard.press("p")
    assert "The peak" in shown.text("moment")


def test_search_finds_by_name_shape_and_line(show: Show) -> None:
    shown = show(SEED)
    sought = {"copy.3": "1 found,", "f32[32,513": "2 found,", "no such thing": "nothing found"}
    for text, found in sought.items():
        shown.page.fill("#search", text)
        assert shown.text("found").startswith(found)
    shown.page.fill("#search", "copy.3")
    shown.page.press("#search", "Enter")
    assert "in HLO copy.3" in shown.text("selected")
    shown.page.fill("#search", "linear.py:663")
    assert re.match(r"\d+ found", shown.text("found"))


def test_wheel_and_drag_zoom_and_pan(show: Show) -> None:
    shown = show(LOOPS)
    width = shown.ask("hlomem.state.to - hlomem.state.from")
    shown.page.hover("#map", position={"x": 400, "y": 100})
    shown.page.keyboard.down("Control")
    shown.page.mouse.wheel(0, -800)
    shown.page.keyboard.up("Control")
    zoomed = shown.ask("hlomem.state.to - hlomem.state.from")
    assert isinstance(zoomed, float | int)
    assert isinstance(width, float | int)
    assert 0 < zoomed < width
    start = shown.ask("hlomem.state.from")
    shown.page.mouse.down()
    shown.page.mouse.move(300, 300, steps=4)
    shown.page.mouse.up()
    assert shown.ask("hlomem.state.from") != start
    assert shown.ask("hlomem.state.to - hlomem.state.from") == pytest.approx(zoomed)
    shown.page.click("#reset")
    assert shown.ask("hlomem.state.to - hlomem.state.from") == width


def test_a_buffer_on_the_map_says_what_it_is(show: Show) -> None:
    shown = show(SEED)
    shown.page.hover("#map", position={"x": 1000, "y": 40})
    tip = shown.text("tip")
    assert "defined at instruction" in tip
    shown.page.click("#map", position={"x": 1000, "y": 40})
    name = re.search(r"in HLO (\S+)", shown.text("selected"))
    assert name is not None
    assert name[0] in tip
    assert shown.ask("hlomem.state.selected") != -1


def test_a_link_restores_the_view(show: Show) -> None:
    shown = show(SEED)
    shown.page.select_option("#chip", "v5e")
    shown.page.select_option("#colouring", "padding")
    shown.page.click("#tables >> text=Copies")
    shown.ask("hlomem.moveTo(3)")
    shown.ask("hlomem.setView(2, 9)")
    shown.ask("hlomem.redraw()")
    link = shown.link()
    shown.open()
    assert shown.ask("hlomem.state.table") == "Buffers"
    shown.open(link)
    wanted = {"step": 3, "chip": "v5e", "colouring": "padding", "table": "Copies", "from": 2}
    for key, value in wanted.items():
        assert shown.ask(f"hlomem.state[{key!r}]") == value
    assert "of v5e" in shown.text("fits")
    shown.page.evaluate("location.hash = '#step=5&space=1'")
    assert (shown.ask("hlomem.state.step"), shown.ask("hlomem.space().name")) == (5, "vmem")
    shown.open("#step=99999&view=7-3&buffer=x&space=-4&chip=<b>&table=constructor&by=&report=9")
    assert shown.ask("hlomem.state.table") == "Buffers"


def test_tables_sort_and_choose(show: Show) -> None:
    shown = show(SEED)
    shown.page.click("#table th:has-text('padding')")
    first = shown.ask("document.querySelector('#table tr td:nth-child(6)').textContent")
    assert first == "4.38 MiB"
    shown.page.click("#table tr:nth-child(2)")
    assert "in HLO copy.3" in shown.text("selected")
    for table in ("Source lines", "Operations", "Padding", "Donations", "Copies"):
        shown.page.click(f"#tables >> text={table}")
        assert shown.text("table").strip()
        assert "undefined" not in shown.text("table")


def test_a_table_is_used_by_keyboard_and_copied(show: Show) -> None:
    shown = show(SEED)
    shown.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown.page.focus("#table th button:has-text('in HLO')")
    shown.page.keyboard.press("Enter")
    assert shown.ask("document.querySelector('#table th:nth-child(9)').ariaSort") == "ascending"
    shown.page.focus("#table tr.linked:nth-child(2)")
    shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("Enter")
    assert "in HLO Arg_1.2" in shown.text("selected")
    shown.page.click("#copy")
    shown.page.wait_for_selector("#table-note >> text=copied")
    copied = str(shown.ask("navigator.clipboard.readText()")).splitlines()
    assert copied[0].startswith("buffer\tline\tsize\t")
    assert [line.split("\t")[8] for line in copied[1:3]] == ["Arg_0.1", "Arg_1.2"]


def test_it_prints_on_white_paper(show: Show) -> None:
    shown = show(SEED, color_scheme="dark")
    assert len(shown.page.pdf()) > 10_000
    shown.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert shown.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shown.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert shown.ask("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


def test_more_than_the_chip_has_is_marked(show: Show) -> None:
    shown = show(SEED)
    shown.page.evaluate("hlomem.report().chips.v5e = 2 ** 20")
    shown.page.select_option("#chip", "v5e")
    assert shown.text("fits").startswith("No:")
    assert shown.page.locator("#capacity b").count() == 1


def test_two_compiles_on_one_page(show: Show, capsys: pytest.CaptureFixture[str]) -> None:
    pair = GOLDENS / "pairs/remat_removed"
    shown = show(pair / "before", pair / "after")
    diff = _json(capsys, "diff", pair / "before", pair / "after")
    bars = shown.ask(
        "[...document.querySelectorAll('#waterfall .label')].map(each => each.textContent)"
    )
    assert isinstance(bars, list)
    assert (bars[0], bars[-1]) == ("A: before", "B: after")
    causes = shown.page.locator("#causes li").all_inner_texts()
    assert len(causes) == len(diff["causes"])
    assert all(
        text.endswith(cause["text"]) for text, cause in zip(causes, diff["causes"], strict=True)
    )
    assert (
        bars[1]
        == max(diff["rows"], key=lambda row: abs(row["after_size"] - row["before_size"]))["key"]
    )
    shown.page.click("#reports >> text=B")
    assert shown.ask("hlomem.space().size") == diff["after"]["size"]
    assert shown.page.is_visible("#other-map")
    assert shown.text("other-map-caption") == "A: before"
    box = shown.page.locator("#other-map").bounding_box()
    assert box is not None
    shown.page.hover("#other-map", position={"x": 180, "y": box["height"] - 5})
    assert "allocation" in shown.page.inner_text("#tip")
    shown.page.click("#other-map", position={"x": 180, "y": box["height"] - 5})
    assert shown.ask("hlomem.space().size") == diff["before"]["size"]


def test_two_programs_of_nothing_in_common(show: Show) -> None:
    shown = show(SEED, LOOPS)
    for space in ("vmem", "sync-flags", "hbm"):
        shown.page.click(f"#spaces >> text={space}")
    shown.page.click("#reports >> text=B")
    shown.page.hover("#other-map")
    assert shown.text("difference-answer")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [480, 1366, 3840])
def test_it_fits_every_screen(show: Show, theme: str, width: int) -> None:
    shown = show(SEED, color_scheme=theme, viewport={"width": width, "height": 900})
    assert shown.ask("document.documentElement.scrollWidth <= innerWidth")
    assert shown.ask("getComputedStyle(document.body).color") != shown.ask(
        "getComputedStyle(document.body).backgroundColor"
    )


def test_dark_and_light_by_key(show: Show) -> None:
    shown = show(SEED, color_scheme="light")
    before = shown.ask("getComputedStyle(document.body).backgroundColor")
    shown.page.keyboard.press("d")
    assert shown.ask("getComputedStyle(document.body).backgroundColor") != before


NASTY = (
    "<script>document.title='run'</script></script><img src=x onerror=alert(1)>'\"&amp;"
    "${name}$$\u2028\u2029\u202e\x07\x1b[31m\x7f]]>-->"
)


def test_names_are_text_whatever_they_hold(show: Show, tmp_path: Path) -> None:
    """Scopes, files and parameters of a program that means harm, planned and shown."""
    name = (NASTY + "x" * 10_000).replace('"', r"\"")
    module = tmp_path / "</script><b>.cpu_after_optimizations.hlo".replace("/", "-")
    module.write_text(
        "HloModule evil, is_scheduled=true\n\n"
        "ENTRY %main (p: f32[1024]) -> f32[1024] {\n"
        f'  %p = f32[1024]{{0}} parameter(0), metadata={{op_name="{name}"}}\n'
        f'  %n = f32[1024]{{0}} negate(%p), metadata={{op_name="{name}" '
        f'source_file="{name}" source_line=3}}\n'
        f'  ROOT %e = f32[1024]{{0}} exponential(%n), metadata={{op_name="{name}"}}\n'
        "}\n"
    )
    shown = show(module)
    assert shown.ask("document.title.includes('hlomem')")
    assert shown.ask("document.querySelectorAll('img').length") == 0
    assert shown.ask("document.querySelectorAll('script').length") == 2
    assert shown.ask("hlomem.report().texts.some((text) => text.length > 10000)")
    for table in ("Source lines", "Operations", "Donations"):
        shown.page.click(f"#tables >> text={table}")
        assert "<script>document.title='run'</script></script><img" in shown.text("table")
    for name in ("#map", "#icicle", "#skyline"):
        shown.page.hover(name)
    shown.page.fill("#search", "</script>")
    shown.page.press("#search", "Enter")
    assert "<img src=x" in shown.text("selected")
    shown.open(shown.link())
    assert shown.ask("document.title.includes('hlomem')")


def test_the_smallest_programs_look_fine(show: Show, tmp_path: Path) -> None:
    one = tmp_path / "one.cpu_after_optimizations.hlo"
    one.write_text(
        "HloModule one, is_scheduled=true\n\nENTRY %main (p: f32[]) -> f32[] {\n"
        "  ROOT %p = f32[] parameter(0)\n}\n"
    )
    shown = show(one)
    assert "4 B" in shown.text("fits")
    empty = tmp_path / "empty.cpu_after_optimizations.hlo"
    empty.write_text(
        "HloModule empty, is_scheduled=true\n\nENTRY %main (p: f32[0]) -> f32[0] {\n"
        "  %p = f32[0]{0} parameter(0)\n  ROOT %n = f32[0]{0} negate(%p)\n}\n"
    )
    assert show(empty).text("fits")


def test_a_notebook_shows_the_report_in_a_frame(browser: Browser, tmp_path: Path) -> None:
    """As Jupyter does: what `_repr_html_` says, somewhere in a page of another address."""
    page, problems = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text))
    plan = hlomem.plan(ONE, backend="cpu")
    for number, shown in enumerate((hlomem.load(SEED)._repr_html_(), plan._repr_html_())):
        notebook = tmp_path / f"{number}.html"
        notebook.write_text(f"<!doctype html><p>cell</p>{shown}", encoding="utf-8")
        page.goto(notebook.as_uri())
        frame = page.frame_locator("iframe")
        frame.locator("html[data-ready=yes]").wait_for()
        frame.locator("#tables >> text=Copies").click()
        assert frame.locator("#fits").inner_text()
    page.wait_for_timeout(400)
    page.close()
    assert problems == []


def test_a_program_of_many_buffers_pans(browser: Browser, tmp_path: Path) -> None:
    """100,000 rectangles are drawn; how fast is told (pytest -s), not judged."""
    path = tmp_path / "many.html"
    path.write_text(format_page([many_buffers(100_000)]), encoding="utf-8")
    shown = Shown(browser, path)
    opened = shown.ask("performance.getEntriesByName('ready')[0].startTime")
    frames = shown.ask(
        """new Promise((done) => {
          let frames = 0;
          const start = performance.now();
          const next = () => {
            hlomem.setView(frames % 50, 60000 + frames % 50);
            hlomem.draw();
            if (++frames < 20) requestAnimationFrame(next);
            else done(frames / (performance.now() - start) * 1000);
          };
          next();
        })"""
    )
    sys.stdout.write(f"opened in {opened:.0f} ms, {frames:.1f} frames a second\n")
    assert shown.ask("hlomem.report().count") == 100_000
    shown.page.close()
    assert shown.problems == []


def test_without_live_ranges_the_page_says_so(show: Show, tmp_path: Path) -> None:
    alone = tmp_path / "x-buffer-assignment.txt"
    alone.write_bytes((LOOPS / "buffer-assignment.txt").read_bytes())
    shown = show(alone)
    assert shown.text("fits")
    assert shown.text("moment") == ""
    shown.page.hover("#map")
    shown.page.click("#skyline", position={"x": 200, "y": 50})
    assert "no live ranges" in shown.text("trust")
