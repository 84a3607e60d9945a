# How every target of this project is compiled, and one command to declare a layer or a test.

add_library(spillway_options INTERFACE)
set(_warnings
  -Wall -Wextra -Wpedantic -Wshadow -Wsign-conversion -Werror -ffp-contract=off
  # Designated initializers leave members to their defaults on purpose; g++ 12 sees uninitialized
  # members in copies of std::variant that are not there.
  -Wno-missing-field-initializers -Wno-maybe-uninitialized
  # Each of the two compilers has warnings that the other does not know.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-warning-option>)
target_compile_options(spillway_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${_warnings}>"
  # What nvcc makes of a file for the host compiler is not pedantic.
  "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")
target_include_directories(spillway_options INTERFACE "${CMAKE_SOURCE_DIR}")
if(SPILLWAY_SANITIZE)
  set(_instrumented -fsanitize=${SPILLWAY_SANITIZE} -fno-omit-frame-pointer -Wno-error=tsan)
  target_compile_options(spillway_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${_instrumented}>")
  target_link_options(spillway_options INTERFACE -fsanitize=${SPILLWAY_SANITIZE})
endif()

find_program(SPILLWAY_MOLD mold)
if(SPILLWAY_MOLD)
  target_link_options(spillway_options INTERFACE -fuse-ld=mold)
endif()
find_program(SPILLWAY_CCACHE ccache)
if(SPILLWAY_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${SPILLWAY_CCACHE})
endif()

# spillway_layer(name SOURCES... DEPENDS...): static library spillway_<name>, alias spillway::<name>.
function(spillway_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(spillway_${name} STATIC ${ARG_SOURCES})
  add_library(spillway::${name} ALIAS spillway_${name})
  target_link_libraries(spillway_${name}
    PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:spillway_options>)
  target_include_directories(spillway_${name} PUBLIC
    "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>" $<INSTALL_INTERFACE:include/spillway>)
  target_compile_features(spillway_${name} PUBLIC cxx_std_20)
  set_target_properties(spillway_${name} PROPERTIES EXPORT_NAME ${name})
endfunction()

# spillway_test(name SOURCES... DEPENDS... [LABELS ...]): a GoogleTest program as one ctest entry.
function(spillway_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} spillway_options GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}")
endfunction()

# spillway_gpu_test(name SOURCES... DEPENDS...): likewise, labelled gpu; skipped where there is no
# GPU. One of them has it at a time.
function(spillway_gpu_test name)
  spillway_test(${name} ${ARGN} LABELS gpu)
  target_sources(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests/support/gpu_main.cpp")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu)
endfunction()
