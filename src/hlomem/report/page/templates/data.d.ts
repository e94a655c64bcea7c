// The data of the page. Made by tools/write_page_types.py; change the records in Python instead.

/** What html.py puts into the page. */
export interface PageData {
  schema: string;
  /** One compile, or two to compare. */
  reports: Page[];
  difference: Waterfall | null;
  front: PageFront | null;
}

/** One thing to change. */
export interface Advice {
  rule: string;
  title: string;
  argument: string;
  least: number | null;
  most: number | null;
  got: number | null;
  method: "compiled" | "possible" | "re-planned";
  confidence: "high" | "low" | "medium";
  cost: string;
  how: string;
  link: string;
}

/** Advice about a program's memory. */
export interface AdviceReport {
  name: string;
  space: string;
  size: number;
  advice: Advice[];
  target: string;
  together: FittingSet | null;
  notes: string[];
}

/** An argument of the program and the fate of its memory. */
export interface Argument {
  name: string;
  number: number;
  size: number;
  shape: string;
  state: "lost" | "no match" | "possible" | "read later" | "used";
  result: string | null;
  output_index: number[] | null;
  copied_size: number;
  why: string;
}

/** The steps of a called computation. */
export interface Band {
  name: string;
  operation: string;
  kind: string;
  start: number;
  end: number;
  depth: number;
}

export interface Bar {
  label: string;
  from: number;
  to: number;
  is_total: boolean;
}

export interface CodeAdvice {
  text: string;
  code: string;
  is_tried: boolean;
}

/** The buffers, one list per field; texts are indices into `Page.texts`, or -1. */
export interface Columns {
  id: number[];
  name: number[];
  shape: number[];
  op_name: number[];
  source: number[];
  opcode: number[];
  parameter: number[];
  role: number[];
  rank: number[];
  allocation: number[];
  offset: number[];
  size: number[];
  padding: number[];
  start: number[];
  end: number[];
  last_use: number[];
}

export interface Copy {
  name: string;
  size: number;
  shape: string;
  of: string | null;
  of_shape: string | null;
  cause: "kept value" | "layout" | "memory space" | "unknown";
  why: string;
  start: number | null;
  end: number | null;
  is_at_peak: boolean;
  source: string | null;
  op_name: string | null;
}

/** An act by which a program says how arrays are split, or what a loop keeps. */
export interface Decision {
  kind: "checkpoint" | "constraint" | "dropped" | "gather" | "hoisted" | "random" | "scan" | "shard_map";
  shapes: number[][];
  specs: string[];
  sizes: number[];
  applied: Frame[];
  made: Frame[];
  written: Frame[];
  of: string;
}

/** One error of a plan. */
export interface Finding {
  rule: string;
  message: string;
  severity: "error" | "warning";
  values: ValueEvidence[];
  allocations: number[];
  evidence: string[];
}

/** Changes taken together, so that a program fits, or as near to that as was reached. */
export interface FittingSet {
  limit: number | null;
  limit_name: string;
  titles: string[];
  size: number;
  fits: boolean;
  cost: string;
  how: string;
  tried: number;
}

export interface FleetError {
  kind: string;
  count: number;
  example: string;
}

export interface FleetLine {
  line: string;
  size: number;
  programs: number;
  largest: string;
}

export interface FleetPage {
  run: string;
  runs: string[];
  programs: FleetPrograms;
  left_out: number;
  errors: FleetError[];
  lines: FleetLine[];
  series: FleetSeries[];
  chips: Record<string, number>;
  platforms: Record<string, string>;
  chip: string;
  capacity: number | null;
  pages: string;
  command: string;
}

/** The programs of a run, one list per field, largest first. */
export interface FleetPrograms {
  id: string[];
  name: string[];
  place: string[];
  backend: string[];
  needs: number[];
  peak: number[];
  padding: number[];
  copies: number[];
  donatable: number[];
  has_page: boolean[];
}

export interface FleetSeries {
  name: string;
  place: string;
  needs: number[];
}

/** A call of the user's code that was going on. */
export interface Frame {
  line: string;
  function: string;
  begin: number;
  is_mapped: boolean;
}

export interface FrontPoint {
  name: string;
  kind: "given" | "ordered" | "policy" | "recomputed";
  temporaries: number;
  total: number;
  flops: number;
  program_flops: number;
  time: number;
  program_time: number;
  on_front: boolean;
  is_chosen: boolean;
  lines: string[];
  kept: string[];
  tensors: [string, string][];
  code: string;
}

export type GrownDimension = [number | null, number, number];

export interface Hint {
  size: number;
  what: string;
  command: string;
}

export interface Hole {
  offset: number;
  size: number;
  above: string | null;
  above_start: number | null;
  above_end: number | null;
  before: string | null;
  before_end: number | null;
  after: string | null;
  after_start: number | null;
}

/** Names of groups of buffers without names or lines. */
export interface Labels {
  arguments: string;
  no_line: string;
  unnamed: string;
}

/** One role's bytes over time: the steps at which they change, and by how much. */
export interface Layer {
  role: string;
  steps: number[];
  changes: number[];
}

/** A line that leads to a sharding; another one is to be edited. */
export interface Link {
  what: "applied" | "called" | "made" | "written";
  line: string;
}

/** A family of rules that could not be checked, and why. */
export interface NotChecked {
  rules: string;
  reason: string;
}

/** Another decision instead of one that was noted. */
export interface OtherDecision {
  decision: Decision;
  specs: string[];
  dropped: string[];
  is_used: boolean;
}

/** Another value of an expression of the source, as `jax/probes/levers.py` has it. */
export interface OtherValue {
  key: string;
  change: string;
  site: string;
}

export interface PaddedShape {
  shape: string;
  size: number;
  padding: number;
  growths: GrownDimension[];
  count: number;
  count_at_peak: number;
  padding_at_peak: number;
  fix: string;
  example: string;
  source: string | null;
}

export interface Page {
  name: string;
  backend: string;
  sequence: string[];
  bands: Band[];
  phases: Phase[];
  roles: Role[];
  labels: Labels;
  chips: Record<string, number>;
  nominal_chips: string[];
  chip: string;
  capacity: number | null;
  advice: AdviceReport | null;
  spaces: PageSpace[];
  texts: string[];
  buffers: Columns;
  trust: Trust;
  scoped: ScopedMemory | null;
}

export interface PageAllocation {
  index: number;
  size: number;
  kind: string;
  role: string;
  label: string;
  is_shared_over_time: boolean;
  owner: number;
}

export interface PageFront {
  answer: string;
  points: FrontPoint[];
  limit: number | null;
  advice: CodeAdvice[];
  notes: string[];
}

export interface PageSpace {
  color: number;
  name: string;
  size: number;
  allocations: PageAllocation[];
  roles: RoleShare[];
  fullest_step: number | null;
  peak: Summit | null;
  near_peaks: Summit[];
  layers: Layer[];
  hints: Hint[];
  padding: PaddedShape[];
  growths: string[];
  donation: Argument[];
  copies: Copy[];
  holes: Hole[];
  shardings: ShardedArray[];
  sharding_findings: ShardingFinding[];
}

export interface Phase {
  name: string;
  start: number;
  end: number;
}

/** An expression of the user's code: lines from 1, columns from 0, the end excluded. */
export interface Place {
  file: string;
  line: number;
  column: number;
  end_line: number;
  end_column: number;
  is_constraint: boolean;
}

export interface Reason {
  text: string;
  delta: number;
}

export interface Role {
  name: string;
  meaning: string;
  colour: string;
  rank: number;
}

export interface RoleShare {
  role: string;
  size: number;
  count: number;
}

export interface ScopedMemory {
  rows: ScopedRow[];
  limit: number | null;
  limit_from: string;
  reserved_beyond: number;
}

/** One kernel or fusion. */
export interface ScopedRow {
  name: string;
  instruction: string;
  kind: string;
  space: string;
  used: number;
  limit: number | null;
  is_own_limit: boolean;
  source: string | null;
  op_name: string | null;
}

/** An array on each device. */
export interface ShardedArray {
  name: string;
  role: string;
  size: number;
  whole: number[] | null;
  local: number[] | null;
  spec: string | null;
  replication: number | null;
  split_size: number | null;
  split_spec: string | null;
  source: string | null;
}

/** A change of shardings that helps; specs are as JAX writes them, `P('data', None)`. */
export interface ShardingChange {
  arguments: Record<string, string>;
  other_arguments: Record<string, string>;
  results: Record<string, string>;
  constraint: string;
  alternatives: string[];
  through: string[];
  place: Place | null;
  dimensions: number[];
  asked: string;
  pins: Place[];
  may_be_left_out: boolean;
  is_assigned: boolean;
  decisions: OtherDecision[];
  value: OtherValue | null;
  is_of_batch: boolean;
  has_mesh: boolean;
  drops_gathered: boolean;
  exchanges: OtherDecision[];
}

export interface ShardingFinding {
  kind: "donated" | "dropped" | "gathered" | "optimizer" | "padding" | "replicated" | "reshard" | "stack";
  title: string;
  why: string;
  size: number;
  promised: number;
  got: number | null;
  source: string | null;
  chain: Link[];
  names: string[];
  axes: string[];
  how: string;
  change: ShardingChange;
  warning: string;
  is_other: boolean;
  least: number;
  note: string;
}

/** A local maximum of the bytes alive. */
export interface Summit {
  step: number;
  size: number;
  instruction: string | null;
}

/** Chunks of memory, a list per field, by the time they were asked for. */
export interface TimelineChunks {
  start: number[];
  end: number[];
  size: number[];
  owner: number[];
  name: number[];
  line: number[];
}

/** The page of a timeline. */
export interface TimelinePage {
  name: string;
  limit: number;
  start: number;
  end: number;
  peak: number;
  peak_time: number;
  base: number;
  about: string;
  words: string[];
  chunks: TimelineChunks;
  runs: TimelineRuns;
  plans: TimelinePlan[];
  notes: string[];
}

/** The curve of a program's own plan. */
export interface TimelinePlan {
  name: string;
  peak: number;
  steps: number;
  sizes: number[];
  moments: string[];
}

/** Runs of programs, a list per field. */
export interface TimelineRuns {
  start: number[];
  end: number[];
  name: number[];
  plan: number[];
}

export interface Trust {
  files: string[];
  is_planned: boolean;
  has_module: boolean;
  era: string;
  verdict: Verdict | null;
  notes: string[];
}

/** A value of a finding, as in the dump. */
export interface ValueEvidence {
  id: number;
  name: string;
  allocation: number | null;
  start_byte: number | null;
  end_byte: number | null;
  live_from: number | null;
  live_to: number | null;
  source: string;
}

/** The result of checking one plan. */
export interface Verdict {
  name: string;
  findings: Finding[];
  not_checked: NotChecked[];
  assumed: string[];
  value_count: number;
  allocation_count: number;
  pair_count: number;
}

export interface Waterfall {
  answer: string;
  names: [string, string];
  floor: number;
  causes: Reason[];
  steps: Bar[];
}
