# What `cmake --install` makes: the program, and a package that find_package(Spillway) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/Spillway")
set_target_properties(spillway PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS spillway)
get_property(_rooms GLOBAL PROPERTY SPILLWAY_ROOMS)
list(FILTER _rooms EXCLUDE REGEX "^spillway_(runs|apps)_")
add_library(spillway_spillway INTERFACE)
target_link_libraries(spillway_spillway INTERFACE spillway_trainer_session)
set_target_properties(spillway_spillway PROPERTIES EXPORT_NAME spillway)
install(TARGETS spillway_spillway ${_rooms} spillway_core spillway_spilling spillway_scheduler
                spillway_models
        EXPORT SpillwayTargets)
install(EXPORT SpillwayTargets NAMESPACE spillway:: DESTINATION "${_package}")
install(DIRECTORY include/spillway DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

configure_package_config_file(cmake/SpillwayConfig.cmake.in
  "${CMAKE_BINARY_DIR}/SpillwayConfig.cmake" INSTALL_DESTINATION "${_package}")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/SpillwayConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/SpillwayConfig.cmake"
              "${CMAKE_BINARY_DIR}/SpillwayConfigVersion.cmake" cmake/Cudart.cmake
              cmake/Torch.cmake
        DESTINATION "${_package}")
