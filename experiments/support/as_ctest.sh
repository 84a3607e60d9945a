# shellcheck shell=bash
# The environment of test programs, as cmake/Spillway.cmake sets it for ctest. To be sourced.
if grep -q GenuineIntel /proc/cpuinfo; then export MKL_ENABLE_INSTRUCTIONS=SSE4_2; fi
export OMP_WAIT_POLICY=passive
