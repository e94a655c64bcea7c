"""An experiment: libtpu's compiler phase by phase, with a memory plan as one of its inputs.

libtpu registers PJRT's PhaseCompile extension, marked experimental in openxla
(`xla/pjrt/c/pjrt_c_api_phase_compile_extension.h`). Phase 1 returns the scheduled program and its
BufferAssignmentProto; later phases lower and link both. A wrong plan can end the process: work in a
child.
"""
