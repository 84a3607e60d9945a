# LibTorch as imported target spillway::torch, from the folder of the wheel (torch/include, torch/lib).
# The build and the installed package both include this file.
set(SPILLWAY_TORCH_DIR "$ENV{SPILLWAY_TORCH_DIR}" CACHE PATH "Folder of LibTorch 2.11 (has include/ and lib/)")
if(NOT EXISTS "${SPILLWAY_TORCH_DIR}/include/ATen/ATen.h")
  message(FATAL_ERROR "SPILLWAY_TORCH_DIR='${SPILLWAY_TORCH_DIR}' holds no LibTorch. "
                      "Run scripts/setup.sh, or name a LibTorch 2.11 folder.")
endif()
file(STRINGS "${SPILLWAY_TORCH_DIR}/include/torch/headeronly/version.h" _torch_version
     REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
string(REGEX REPLACE "[^0-9;]" "" _torch_version "${_torch_version}")
string(REPLACE ";" "." _torch_version "${_torch_version}")
if(NOT _torch_version STREQUAL "2.11")
  message(FATAL_ERROR "LibTorch 2.11 is required, '${SPILLWAY_TORCH_DIR}' is '${_torch_version}'")
endif()

add_library(spillway::torch INTERFACE IMPORTED)
target_include_directories(spillway::torch SYSTEM INTERFACE
  "${SPILLWAY_TORCH_DIR}/include" "${SPILLWAY_TORCH_DIR}/include/torch/csrc/api/include")
# The wheel ships headers of another {fmt} version, without the library.
target_compile_definitions(spillway::torch INTERFACE FMT_HEADER_ONLY)
target_link_libraries(spillway::torch INTERFACE
  "${SPILLWAY_TORCH_DIR}/lib/libtorch_cpu.so" "${SPILLWAY_TORCH_DIR}/lib/libc10.so")
# Headers for CUDA streams. The rest of the GPU part is loaded when a GPU is used.
set(SPILLWAY_TORCH_HAS_CUDA FALSE)
if(EXISTS "${SPILLWAY_TORCH_DIR}/lib/libc10_cuda.so")
  set(SPILLWAY_TORCH_HAS_CUDA TRUE)
  add_library(spillway::c10_cuda SHARED IMPORTED)
  set_target_properties(spillway::c10_cuda PROPERTIES
    IMPORTED_LOCATION "${SPILLWAY_TORCH_DIR}/lib/libc10_cuda.so" IMPORTED_SONAME libc10_cuda.so)
endif()
# RUNPATH is not transitive; RPATH is, so the wheel's own libraries find each other. NCCL, which a
# program may load, lies in a folder beside LibTorch.
set(SPILLWAY_TORCH_RPATH "${SPILLWAY_TORCH_DIR}/lib" CACHE STRING "Where programs look for LibTorch")
string(REGEX REPLACE "([^:]+)" "\\1/../../nvidia/nccl/lib" _nccl_rpath "${SPILLWAY_TORCH_RPATH}")
target_link_options(spillway::torch INTERFACE
  "LINKER:--disable-new-dtags,-rpath,${SPILLWAY_TORCH_RPATH}:${_nccl_rpath}")
