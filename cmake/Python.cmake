# The Python for which the package is built, and its LibTorch: that of the torch which it has, which
# pip's isolated build cannot import.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
if(NOT SPILLWAY_TORCH_DIR AND NOT DEFINED ENV{SPILLWAY_TORCH_DIR})
  foreach(_site "${Python_SITEARCH}" "${Python_SITELIB}")
    if(EXISTS "${_site}/torch/include/ATen/ATen.h")
      set(SPILLWAY_TORCH_DIR "${_site}/torch" CACHE PATH "Folder of LibTorch 2.11")
      break()
    endif()
  endforeach()
  if(NOT SPILLWAY_TORCH_DIR)
    message(FATAL_ERROR "${Python_SITEARCH} has no torch. "
                        "First run: python -m pip install 'torch==2.11.*'")
  endif()
endif()
execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(nanobind CONFIG REQUIRED)
