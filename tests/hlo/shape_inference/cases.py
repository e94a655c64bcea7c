"""Instructions without shapes: each a line with the instruction and the shapes of its operands.

`tools/record_written.py` asks XLA what it infers for each.
"""
# ruff: noqa: E501 - a case is a line

from __future__ import annotations

PRELUDE = """\
sum { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
sum16 { x = bf16[] parameter(0) y = bf16[] parameter(1) ROOT s = bf16[] add(x, y) }
both { x = f32[] parameter(0) y = s32[] parameter(1) u = f32[] parameter(2) v = s32[] parameter(3) ROOT t = (f32[], s32[]) tuple(x, y) }
less { x = f32[] parameter(0) y = f32[] parameter(1) ROOT c = pred[] compare(x, y), direction=LT }
body { x = (f32[4], s32[]) parameter(0) ROOT t = (f32[4], s32[]) copy(x) }
cond { x = (f32[4], s32[]) parameter(0) ROOT c = pred[] constant(true) }
one { ROOT x = f32[4] parameter(0) }
two { x = f32[4] parameter(0) n = s32[] constant(3) ROOT s = f32[<=4] set-dimension-size(x, n), dimensions={0} }
pair { x = f32[4] parameter(0) ROOT t = (f32[4], f32[2]{0:S(1)}) custom-call(x), custom_call_target="x" }
step { x = f32[8] parameter(0) c = f32[8] parameter(1) ROOT t = (f32[8], f32[8]) tuple(x, c) }
stack { ROOT x = f32[8] parameter(0) }
"""

CASES = """\
abs(p0) | f32[2,3]{0,1:T(2,128)S(1)}
abs(p0) | c64[2]
abs(p0) | s32[2]
abs(p0) | u32[2]
abs(p0) | pred[2]
abs(p0) | (f32[2])
ceil(p0) | f32[2]
ceil(p0) | s32[2]
cosine(p0) | c128[2]
cosine(p0) | s32[2]
negate(p0) | u8[2]
negate(p0) | pred[2]
not(p0) | pred[2]
not(p0) | f32[2]
popcnt(p0) | s32[2]
popcnt(p0) | f32[2]
sign(p0) | c64[]
sign(p0) | u32[]
real(p0) | c64[2]{0:S(1)}
imag(p0) | f32[2]
imag(p0) | s32[2]
is-finite(p0) | f32[2]{0:T(128)}
is-finite(p0) | s32[2]
copy(p0) | (f32[2], token[])
opt-barrier(p0) | (f32[2])
add(p0, p1) | f32[2,3]{0,1} f32[2,3]
add(p0, p1) | f32[2,3] f32[2,3]{0,1}
add(p0, p1) | bf16[2] f32[2]
add(p0, p1) | f16[2] bf16[2]
add(p0, p1) | s32[2] u32[2]
add(p0, p1) | f32[2] f32[3]
add(p0, p1) | f32[2,1] f32[1,3]
add(p0, p1) | f32[2,3]{0,1} f32[]
add(p0, p1) | f32[] f32[2,3]{0,1}
add(p0, p1) | f32[3] f32[2,3]
add(p0, p1) | f32[<=2] f32[2]
add(p0, p1) | f32[2] f32[<=2]
add(p0, p1) | f32[?,3] f32[2,3]
add(p0, p1) | f32[?,3] f32[<=2,3]
add(p0, p1) | f32[?] f32[1]
add(p0, p1) | pred[2] pred[2]
add(p0, p1) | s4[2]{0:E(4)} s4[2]
subtract(p0, p1) | pred[2] pred[2]
divide(p0, p1) | f32[2] f32[2]
shift-left(p0, p1) | s32[2] s32[2]
atan2(p0, p1) | s32[2] s32[2]
atan2(p0, p1) | f32[2] f32[2]
and(p0, p1) | pred[2] pred[2]
and(p0, p1) | f32[2] f32[2]
complex(p0, p1) | f32[2]{0:S(1)} f32[2]
complex(p0, p1) | f64[2] f64[2]
complex(p0, p1) | bf16[2] bf16[2]
compare(p0, p1), direction=LT | s4[2]{0:E(4)} s4[2]{0:E(4)}
compare(p0, p1), direction=LT | f32[2] s32[2]
clamp(p0, p1, p2) | f32[] f32[4]{0:S(1)} f32[]
clamp(p0, p1, p2) | f32[4] f32[4] f32[]
clamp(p0, p1, p2) | f32[3] f32[4] f32[]
select(p0, p1, p2) | pred[] f32[4]{0:S(1)} f32[4]
select(p0, p1, p2) | pred[4]{0:S(1)} f32[4] f32[4]
select(p0, p1, p2) | pred[4] bf16[4] f32[4]
select(p0, p1, p2) | pred[4] f32[<=4] f32[4]
select(p0, p1, p2) | pred[] f32[?] f32[4]
select(p0, p1, p2) | s32[] f32[4] f32[4]
select(p0, p1, p2) | pred[3] f32[4] f32[4]
tuple(p0, p1) | f32[2]{0:S(1)} token[]
tuple() |
get-tuple-element(p0), index=1 | (f32[2], (s32[]))
broadcast(p0) | f32[]
broadcast(p0), dimensions={2,3} | f32[4]
broadcast(p0), dimensions={0} | f32[<=4]
concatenate(p0, p1), dimensions={0} | f32[2,3] f32[4,3]{0,1}
concatenate(p0, p1), dimensions={0} | f32[2,3] f32[4,4]
concatenate(p0, p1), dimensions={0} | bf16[2] f32[2]
concatenate(p0, p1), dimensions={0} | f32[<=2,?] f32[4,3]
concatenate(p0, p1), dimensions={0} | f32[?,3] f32[4,<=3]
concatenate(p0, p1), dimensions={1} | f32[2] f32[2]
pad(p0, p1), padding=1_2_1 | f32[4] f32[]
pad(p0, p1), padding=-1_0 | f32[<=4] f32[]
pad(p0, p1), padding=-9_0 | f32[4] f32[]
pad(p0, p1), padding=0_0x0_0 | f32[4] f32[]
pad(p0, p1), padding=0_0 | f32[4] f32[1]
transpose(p0), dimensions={2,0,1} | f32[2,3,4]{0,2,1:T(2,128)}
transpose(p0), dimensions={1,0} | f32[<=2,3]
transpose(p0), dimensions={0,0} | f32[2,3]
reverse(p0), dimensions={1} | f32[2,3]{0,1}
reverse(p0), dimensions={2} | f32[2,3]
sort(p0), dimensions={0}, to_apply=less | f32[4]{0:S(1)}
sort(p0, p1), dimensions={0}, to_apply=less | f32[4] s32[4]
sort(p0, p1), dimensions={0}, to_apply=less | f32[4] s32[5]
topk(p0), k=2 | f32[3,<=4]
topk(p0), k=5 | f32[3,4]
get-dimension-size(p0), dimensions={0} | f32[<=4]
get-dimension-size(p0), dimensions={1} | f32[4]
set-dimension-size(p0, p1), dimensions={0} | f32[4,5]{0,1} s32[]
set-dimension-size(p0, p1), dimensions={0} | f32[4,5] s64[]
reduce(p0, p1), dimensions={0}, to_apply=sum | f32[2,3,4]{0,1,2} f32[]
reduce(p0, p1), dimensions={0,2}, to_apply=sum | f32[2,<=3,4] f32[]
reduce(p0, p1), dimensions={}, to_apply=sum | bf16[2] f32[]
reduce(p0, p1), dimensions={0}, to_apply=sum16 | f32[2] f32[]
reduce(p0, p1, p2, p3), dimensions={1}, to_apply=both | f32[2,3] s32[2,3] f32[] s32[]
reduce(p0, p1), dimensions={0,0}, to_apply=sum | f32[2] f32[]
reduce(p0, p1), dimensions={1}, to_apply=sum | f32[2] f32[]
reduce(p0, p1), dimensions={0}, to_apply=both | f32[2] f32[]
reduce(p0, p1), dimensions={0}, to_apply=sum | s32[2] s32[]
reduce-window(p0, p1), window={size=2x2 stride=2x1 pad=0_1x1_0}, to_apply=sum | f32[8,9]{0,1} f32[]
reduce-window(p0, p1), window={size=2 lhs_dilate=2 rhs_dilate=3}, to_apply=sum | f32[<=8] f32[]
reduce-window(p0, p1), window={size=9}, to_apply=sum | f32[8] f32[]
reduce-window(p0, p1), window={size=2x2}, to_apply=sum | f32[8] f32[]
reduce-window(p0, p1), window={size=0}, to_apply=sum | f32[8] f32[]
select-and-scatter(p0, p1, p2), window={size=2 stride=2}, select=less, scatter=sum | f32[8]{0:S(1)} f32[4] f32[]
select-and-scatter(p0, p1, p2), window={size=2 stride=2}, select=less, scatter=sum | f32[8] f32[5] f32[]
select-and-scatter(p0, p1, p2), window={size=2 stride=2}, select=sum, scatter=sum | f32[8] f32[4] f32[]
dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0} | f32[2,3] f32[3,4]
dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={0} | bf16[5,2,3] f32[3,5,<=4]
dot(p0, p1) | f32[2] f32[3]
dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0} | f32[2,3] f32[4,3]
dot(p0, p1), lhs_contracting_dims={1,1}, rhs_contracting_dims={0,1} | f32[2,3] f32[3,3]
dot(p0, p1), lhs_contracting_dims={2}, rhs_contracting_dims={0} | f32[2,3] f32[3,4]
dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={} | f32[2,3] f32[3,4]
ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0} | f32[4,8] f32[3,8,2] s32[3]
ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={0}, lhs_ragged_dims={1} | f32[4,8] f32[8,2] s32[3]
ragged-dot(p0, p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0} | f32[4,8] f32[3,8,2] s32[3]
ragged-dot(p0, p1, p2), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}, lhs_ragged_dims={0} | f32[5,4,8] f32[5,8,2] s32[3]
scaled-dot(p0, p1, p2, p3), lhs_contracting_dims={1}, rhs_contracting_dims={0} | f8e4m3fn[4,32] f8e8m0fnu[4,1] f8e4m3fn[32,2] f8e8m0fnu[1,2]
convolution(p0, p1), window={size=3x3 pad=1_1x1_1 stride=2x1}, dim_labels=b01f_01io->b01f | f32[1,8,9,4] f32[3,3,4,16]
convolution(p0, p1), window={size=3}, dim_labels=bf0_oi0->0bf, feature_group_count=2 | f32[<=2,4,8] f32[6,2,3]
convolution(p0, p1), window={size=3}, dim_labels=bf0_oi0->bf0, batch_group_count=2 | f32[4,4,8] f32[6,4,3]
convolution(p0, p1), window={size=3}, dim_labels=bf0_oi0->bf0, feature_group_count=3 | f32[4,4,8] f32[6,4,3]
convolution(p0, p1), window={size=2}, dim_labels=bf0_oi0->bf0 | f32[4,4,8] f32[6,4,3]
convolution(p0, p1), window={size=3x3}, dim_labels=bf0_oi0->bf0 | f32[4,4,8] f32[6,4,3]
fft(p0), fft_type=FFT, fft_length={8} | c64[3,8]{0,1}
fft(p0), fft_type=RFFT, fft_length={8} | f32[3,8]{0,1}
fft(p0), fft_type=RFFT, fft_length={8} | f64[3,<=8]
fft(p0), fft_type=IRFFT, fft_length={8} | c64[3,5]
fft(p0), fft_type=IRFFT, fft_length={8} | c64[3,8]
fft(p0), fft_type=RFFT, fft_length={4} | f32[3,8]
fft(p0), fft_type=FFT, fft_length={8} | f32[8]
fft(p0), fft_type=FFT, fft_length={1,2,3,4} | c64[1,2,3,4]
cholesky(p0), lower=true | f32[2,4,4]{0,2,1}
cholesky(p0) | f32[4,5]
cholesky(p0) | s32[4,4]
triangular-solve(p0, p1), left_side=true, transpose_a=NO_TRANSPOSE | f32[4,4] f32[4,3]{0,1}
triangular-solve(p0, p1), transpose_a=ADJOINT | f32[4,4] f32[3,4]
triangular-solve(p0, p1), left_side=true | f32[4,4] f32[4,3]
triangular-solve(p0, p1), left_side=true, transpose_a=NO_TRANSPOSE | f32[4,4] f32[3,4]
gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8} | f32[4,8]{0,1} s32[2,1]
gather(p0, p1), offset_dims={0,2}, collapsed_slice_dims={}, start_index_map={1}, index_vector_dim=1, slice_sizes={4,3} | f32[4,8] s32[5]
gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8} | f32[4,<=8] s32[<=2,1]
gather(p0, p1), offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1,7} | f32[3,4,7] s32[3,5,1]
gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={2,8} | f32[4,8] s32[2,1]
gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,9} | f32[4,8] s32[2,1]
gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,8} | f32[4,8] s32[2,1]
gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=3, slice_sizes={1,8} | f32[4,8] s32[2,1]
gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8} | f32[4,8] f32[2,1]
scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum | f32[4,8]{0,1} s32[2,1] f32[2,8]
scatter(p0, p1, p2, p3, p4), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=both | f32[4,8] s32[4,8] s32[2,1] f32[2,8] s32[2,8]
scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum | f32[4,8] s32[2,1] f32[3,8]
scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum | f32[4,8] s32[2,1] f32[2,9]
scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum | f32[4,8] s32[2,1] f32[2,8]
batch-norm-training(p0, p1, p2), epsilon=0.001, feature_index=1 | f32[4,8]{0,1} f32[8] f32[8]
batch-norm-training(p0, p1, p2), epsilon=0.001, feature_index=1 | f32[4,8] f32[7] f32[8]
batch-norm-training(p0, p1, p2), epsilon=0.001, feature_index=2 | f32[4,8] f32[8] f32[8]
batch-norm-inference(p0, p1, p2, p3, p4), epsilon=0.001, feature_index=0 | f32[4,8]{0,1} f32[4] f32[4] f32[4] f32[4]
batch-norm-grad(p0, p1, p2, p3, p4), epsilon=0.001, feature_index=1 | f32[4,<=8] f32[8] f32[8] f32[8] f32[4,8]
batch-norm-grad(p0, p1, p2, p3, p4), epsilon=0.001, feature_index=1 | f32[4,8] f32[8] f32[8] f32[8] f32[4,9]
map(p0, p1), dimensions={0,1}, to_apply=sum | f32[2,3]{0,1} f32[2,3]
map(p0, p1), dimensions={0}, to_apply=sum | f32[2,3] f32[2,3]
map(p0), dimensions={0}, to_apply=sum | f32[2]
call(p0), to_apply=pair | f32[4]{0:S(1)}
call(p0), to_apply=pair | f32[5]
call(p0, p0), to_apply=pair | f32[4]
while(p0), condition=cond, body=body | (f32[4]{0:S(1)}, s32[])
while(p0), condition=cond, body=body | (f32[5], s32[])
while(p0), condition=body, body=body | (f32[4], s32[])
conditional(p0, p1, p1), true_computation=one, false_computation=one | pred[] f32[4]{0:S(1)}
conditional(p0, p1, p1), branch_computations={one, two} | s32[] f32[4]
conditional(p0, p1, p1), branch_computations={one, pair} | s32[] f32[4]
conditional(p0, p1, p2), branch_computations={one, one} | s32[] f32[4] f32[5]
scan(p0, p1), dimensions={0}, num_carries=1, to_apply=step | f32[3,8] f32[8]
scan(p0, p1), dimensions={1}, num_carries=1, to_apply=step | f32[8,3]{0,1} f32[8]
scan(p0), dimensions={0}, num_carries=0, to_apply=stack | f32[3,8]
after-all(p0) | token[]
add-dependency(p0, p1) | f32[2]{0:S(1)} token[]
replica-id() |
partition-id() |
domain(p0), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}} | f32[2]{0:S(1)}
convert(p0) | f32[2]
reshape(p0) | f32[2]
"""


def instructions() -> list[str]:
    """The cases, each a line."""
    return CASES.splitlines()


def module(case: str) -> str:
    """A text whose root is the instruction of a case, without its shape."""
    instruction, _, shapes = case.partition("|")
    depth, parts = 0, [""]
    for mark in shapes.strip():
        depth += (mark in "([{") - (mark in ")]}")
        parts[-1] += mark
        if mark == " " and depth == 0:
            parts.append("")
    lines = [
        f"p{number} = {shape.strip()} parameter({number})"
        for number, shape in enumerate(filter(None, parts))
    ]
    body = "\n  ".join([*lines, f"ROOT r = {instruction.strip()}"])
    return f"HloModule m\n\n{PRELUDE}\nENTRY e {{\n  {body}\n}}\n"
