# The runtime library of CUDA as imported target spillway::cudart. It needs no driver to be loaded.
# The build and the installed package both include this file.
if(NOT EXISTS "${SPILLWAY_CUDART}")
  message(FATAL_ERROR "SPILLWAY_CUDART='${SPILLWAY_CUDART}' is no libcudart.so.13; "
                      "name that of LibTorch or of the CUDA toolkit")
endif()
add_library(spillway::cudart SHARED IMPORTED)
set_target_properties(spillway::cudart PROPERTIES
  IMPORTED_LOCATION "${SPILLWAY_CUDART}" IMPORTED_SONAME libcudart.so.13)
