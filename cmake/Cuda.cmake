# The device body for NVIDIA GPUs, if the toolkit is installed. Sets SPILLWAY_HAS_CUDA; if that is
# true, enables the language and makes the target spillway::cudart. Sets SPILLWAY_HAS_NCCL.
set(SPILLWAY_CUDA AUTO CACHE STRING
    "Device body for NVIDIA GPUs: AUTO (where nvcc 13 or newer is found), ON or OFF")
set_property(CACHE SPILLWAY_CUDA PROPERTY STRINGS AUTO ON OFF)
set(SPILLWAY_HAS_CUDA FALSE)
set(SPILLWAY_HAS_NCCL FALSE)
if(NOT SPILLWAY_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "SPILLWAY_CUDA='${SPILLWAY_CUDA}' must be AUTO, ON or OFF")
endif()
if(SPILLWAY_CUDA STREQUAL "OFF")
  return()
endif()

find_program(SPILLWAY_NVCC nvcc HINTS "$ENV{CUDA_PATH}/bin" PATHS /usr/local/cuda/bin
             DOC "Compiler of the CUDA toolkit")
set(_nvcc_version 0)
if(SPILLWAY_NVCC)
  execute_process(COMMAND "${SPILLWAY_NVCC}" --version OUTPUT_VARIABLE _nvcc_says ERROR_QUIET)
  if(_nvcc_says MATCHES "release ([0-9]+\\.[0-9]+)")
    set(_nvcc_version "${CMAKE_MATCH_1}")
  endif()
endif()
# LibTorch 2.11 has the libraries of CUDA 13, and a process can load only one libcudart.
if(_nvcc_version VERSION_LESS 13)
  set(_problem "nvcc 13 or newer is needed for GPUs, found: ${SPILLWAY_NVCC} ${_nvcc_version}")
  if(SPILLWAY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SPILLWAY_CUDA=ON: ${_problem}. Name one in SPILLWAY_NVCC.")
  endif()
  message(STATUS "Without CUDA: ${_problem}")
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # Code for 8.0 also runs on 8.6 and 8.9, and so on; newer GPUs compile the PTX of 12.0.
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;100-real;120" CACHE STRING "GPUs to compile for")
endif()
set(CMAKE_CUDA_COMPILER "${SPILLWAY_NVCC}" CACHE FILEPATH "")
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # Cudart.cmake chooses it
enable_language(CUDA)
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
# With asserts, as for C++. CUDA's sanitizer reports lines.
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2 -lineinfo")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo")
set(SPILLWAY_HAS_CUDA TRUE)

# libtorch_cpu loads the libcudart beside it, so link that one; without LibTorch, the toolkit's.
if(SPILLWAY_TORCH)
  set(_beside_torch "$ENV{SPILLWAY_TORCH_DIR}" "${SPILLWAY_TORCH_DIR}")
  list(TRANSFORM _beside_torch APPEND "/../nvidia/cu13/lib")
endif()
find_library(SPILLWAY_CUDART NAMES libcudart.so.13 libcudart.so
             PATHS ${_beside_torch} ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} NO_DEFAULT_PATH
             DOC "The runtime library of CUDA 13")
include("${CMAKE_CURRENT_LIST_DIR}/Cudart.cmake")

# The header of NCCL, whose library is loaded when hosts need it. LibTorch's own is preferred.
find_path(SPILLWAY_NCCL_INCLUDE nccl.h
          HINTS "$ENV{SPILLWAY_TORCH_DIR}/../nvidia/nccl/include"
                "${SPILLWAY_TORCH_DIR}/../nvidia/nccl/include"
          PATHS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} DOC "Folder of nccl.h")
if(SPILLWAY_NCCL_INCLUDE)
  set(SPILLWAY_HAS_NCCL TRUE)
else()
  message(STATUS "Without NCCL: nccl.h was not found; name its folder in SPILLWAY_NCCL_INCLUDE")
endif()
