# How every target of this project is compiled, and commands to declare layers and tests.

add_library(spillway_options INTERFACE)
set(_warnings
  -Wall -Wextra -Wpedantic -Wshadow -Wsign-conversion -Werror -ffp-contract=off
  -fno-semantic-interposition
  # Designated initializers leave members to their defaults on purpose; g++ 12 sees uninitialized
  # members in copies of std::variant that are not there.
  -Wno-missing-field-initializers -Wno-maybe-uninitialized
  # Each of the two compilers has warnings that the other lacks. g++ reports deprecated uses; clang
  # also reports one inside the stable_sort of libstdc++ 12. LibTorch is built by g++; from 18 on,
  # clang gives some of its templates other names.
  "$<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-warning-option;-Wno-deprecated-declarations;-Wthread-safety>"
  "$<$<AND:$<CXX_COMPILER_ID:Clang>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,18>>:-fclang-abi-compat=17>")
target_compile_options(spillway_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${_warnings}>"
  # The host code that nvcc generates is not pedantic.
  "$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")
target_include_directories(spillway_options INTERFACE
  "${CMAKE_SOURCE_DIR}" "${CMAKE_SOURCE_DIR}/include")
if(SPILLWAY_SANITIZE)
  set(_instrumented -fsanitize=${SPILLWAY_SANITIZE} -fno-omit-frame-pointer -Wno-error=tsan)
  if(SPILLWAY_SANITIZE MATCHES "address,undefined")
    # Most of what these find, the address sanitizer finds too; without them files compile in half
    # of the time.
    list(APPEND _instrumented -fno-sanitize=null,object-size,vptr)
  endif()
  target_compile_options(spillway_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${_instrumented}>")
  target_compile_definitions(spillway_options INTERFACE SPILLWAY_SANITIZED)
  target_link_options(spillway_options INTERFACE -fsanitize=${SPILLWAY_SANITIZE})
endif()
# Tests link this after spillway_options: their own code goes without these checks, with which it
# takes three times as long to compile. Rooms have them, but where a room and a test share a function
# of a header, the linker may keep the copy without.
add_library(spillway_test_options INTERFACE)
foreach(kind undefined fuzzer-no-link)
  if(SPILLWAY_SANITIZE MATCHES ${kind})
    target_compile_options(spillway_test_options INTERFACE
      "$<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=${kind}>")
  endif()
endforeach()

find_program(SPILLWAY_MOLD mold)
if(SPILLWAY_MOLD)
  target_link_options(spillway_options INTERFACE -fuse-ld=mold)
endif()
find_program(SPILLWAY_CCACHE ccache)
if(SPILLWAY_CCACHE)
  # Paths below the tree count as relative ones, so that all checkouts share compiled files.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
    CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${SPILLWAY_CCACHE})
endif()

# spillway_room(name SOURCES... DEPENDS...): the folder `name` of a layer as a static library,
# spillway::LAYER_NAME. SOURCES are its files, DEPENDS the libraries to link with it;
# tests/layers_test.py lists the rooms it may include.
function(spillway_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  get_filename_component(layer "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  string(REPLACE "/" "_" room "${layer}_${name}")
  # A generator expression stands for itself.
  list(TRANSFORM ARG_SOURCES PREPEND "${name}/" REGEX "^[^$]")
  add_library(spillway_${room} STATIC ${ARG_SOURCES})
  add_library(spillway::${room} ALIAS spillway_${room})
  target_link_libraries(spillway_${room}
    PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:spillway_options>)
  target_include_directories(spillway_${room} PUBLIC
    "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>" "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>"
    $<INSTALL_INTERFACE:include>)
  target_compile_features(spillway_${room} PUBLIC cxx_std_20)
  set_target_properties(spillway_${room} PROPERTIES EXPORT_NAME ${room})
  set_property(DIRECTORY APPEND PROPERTY SPILLWAY_ROOMS spillway_${room})
  set_property(GLOBAL APPEND PROPERTY SPILLWAY_ROOMS spillway_${room})
endfunction()

# spillway_layer(name): all rooms that this folder has declared, as spillway::NAME.
function(spillway_layer name)
  get_property(rooms DIRECTORY PROPERTY SPILLWAY_ROOMS)
  add_library(spillway_${name} INTERFACE)
  add_library(spillway::${name} ALIAS spillway_${name})
  target_link_libraries(spillway_${name} INTERFACE ${rooms})
  set_target_properties(spillway_${name} PROPERTIES EXPORT_NAME ${name})
endfunction()

set(SPILLWAY_TEST_TIMEOUT 1200 CACHE STRING
    "Seconds after which a test has failed: many times what it takes, also under sanitizers")
# For each product, MKL packs matrices into 4 MiB and more on Intel's processors, into kilobytes on
# others. Test models are smaller, so tests select kernels with smaller buffers.
set(_test_environment)
if(EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo _intel REGEX "GenuineIntel" LIMIT_COUNT 1)
  if(_intel)
    set(_test_environment MKL_ENABLE_INSTRUCTIONS=SSE4_2)
  endif()
endif()

# spillway_test_properties(name [LABELS ...] [OWN_KERNELS]): the properties of every ctest entry.
# OWN_KERNELS: the test runs with the kernels that MKL chooses, or chooses them itself.
function(spillway_test_properties name)
  cmake_parse_arguments(ARG "OWN_KERNELS" "" "SOURCES;DEPENDS;ARGS;LABELS" ${ARGN})
  # Threads of LibTorch that wait leave their cores to the other tests.
  set(environment OMP_WAIT_POLICY=passive)
  if(NOT ARG_OWN_KERNELS)
    list(APPEND environment ${_test_environment})
  endif()
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT ${SPILLWAY_TEST_TIMEOUT} ENVIRONMENT "${environment}")
  if("slow" IN_LIST ARG_LABELS)  # they begin first, so that no core waits for the last of them
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endfunction()

# spillway_test(name SOURCES... DEPENDS... [LABELS ...] [OWN_KERNELS]): a GoogleTest program as one
# ctest entry.
function(spillway_test name)
  cmake_parse_arguments(ARG "OWN_KERNELS" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE
    ${ARG_DEPENDS} spillway_options spillway_test_options GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name})
  spillway_test_properties(${name} ${ARGN})
endfunction()

# spillway_python_test(name SCRIPT ARGS... [LABELS ...] [OWN_KERNELS]): a script; exit code 77
# counts as skipped.
function(spillway_python_test name script)
  cmake_parse_arguments(ARG "OWN_KERNELS" "" "ARGS;LABELS" ${ARGN})
  add_test(NAME ${name}
    COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/${script}" ${ARG_ARGS}
    COMMAND_EXPAND_LISTS)
  spillway_test_properties(${name} ${ARGN})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

# spillway_gpu_test(name SOURCES... DEPENDS...): the same, labelled gpu; skipped without a GPU. Only
# one of them runs at a time.
function(spillway_gpu_test name)
  spillway_test(${name} ${ARGN} LABELS gpu)
  target_sources(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests/support/gpu/gpu_main.cpp")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu)
endfunction()
