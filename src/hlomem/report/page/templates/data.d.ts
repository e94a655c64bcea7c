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
  least: number;
  most: number;
  method: "counted" | "re-planned";
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
  notes: string[];
}

/** An argument of the program and what becomes of its memory. */
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

/** One change, or a total. */
export interface Bar {
  label: string;
  from: number;
  to: number;
  is_total: boolean;
}

/** A change of the program's source. */
export interface CodeAdvice {
  text: string;
  code: string;
  is_tried: boolean;
}

/** The buffers, a list per field; texts are numbers of `Page.texts`, -1 for none. */
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

/** A buffer that holds what another holds already. */
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

/** One thing that is wrong with a plan. */
export interface Finding {
  rule: string;
  message: string;
  severity: "error" | "warning";
  values: ValueEvidence[];
  allocations: number[];
  evidence: string[];
}

/** Inputs that could not be read, of one kind. */
export interface FleetError {
  kind: string;
  count: number;
  example: string;
}

/** A source line. */
export interface FleetLine {
  line: string;
  size: number;
  programs: number;
  largest: string;
}

/** The page of a fleet. */
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

/** The programs of a run, a list per field, what needs most first. */
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

/** A program over the runs. */
export interface FleetSeries {
  name: string;
  place: string;
  needs: number[];
}

/** A program that computes the same, with more or less of it computed again. */
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
  code: string;
}

/** One dimension that is larger in memory. */
export type Growth = [number | null, number, number];

/** Something that could be saved. */
export interface Hint {
  size: number;
  what: string;
  command: string;
}

/** A byte range nobody holds when most is alive. */
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

/** Names of groups of buffers whose own names or lines are not known. */
export interface Labels {
  arguments: string;
  no_line: string;
  unnamed: string;
}

/** One role's bytes over time. */
export interface Layer {
  role: string;
  steps: number[];
  changes: number[];
}

/** A family of rules that could not be checked, and why. */
export interface NotChecked {
  rules: string;
  reason: string;
}

/** The buffers of one shape, and what its layout adds. */
export interface PaddedShape {
  shape: string;
  size: number;
  padding: number;
  growths: Growth[];
  count: number;
  count_at_peak: number;
  padding_at_peak: number;
  fix: string;
  example: string;
  source: string | null;
}

/** One report. */
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
}

/** An allocation of a space. */
export interface PageAllocation {
  index: number;
  size: number;
  kind: string;
  role: string;
  label: string;
  is_shared_over_time: boolean;
  owner: number;
}

/** Points of memory against operations. */
export interface PageFront {
  answer: string;
  points: FrontPoint[];
  limit: number | null;
  advice: CodeAdvice[];
  notes: string[];
}

/** One memory space. */
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
}

/** Consecutive steps of one pass over the model. */
export interface Phase {
  name: string;
  start: number;
  end: number;
}

/** A cause of the difference. */
export interface Reason {
  text: string;
  delta: number;
}

/** One row of the table of roles. */
export interface Role {
  name: string;
  meaning: string;
  colour: string;
  rank: number;
}

/** The bytes of a memory space that are for one thing. */
export interface RoleShare {
  role: string;
  size: number;
  count: number;
}

/** A step at which more is alive than around it. */
export interface Summit {
  step: number;
  size: number;
  instruction: string | null;
}

/** The basis of the numbers. */
export interface Trust {
  files: string[];
  is_planned: boolean;
  has_module: boolean;
  era: string;
  verdict: Verdict | null;
  notes: string[];
}

/** A value a finding is about, as the dump shows it. */
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

/** Everything a check has to say about one plan. */
export interface Verdict {
  name: string;
  findings: Finding[];
  not_checked: NotChecked[];
  assumed: string[];
  value_count: number;
  allocation_count: number;
  pair_count: number;
}

/** The way from one compile to the other. */
export interface Waterfall {
  answer: string;
  names: [string, string];
  floor: number;
  causes: Reason[];
  steps: Bar[];
}
