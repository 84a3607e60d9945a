# What `cmake --install` makes: the program, and a package that find_package(Spillway) finds.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/Spillway")
set_target_properties(spillway PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS spillway)
install(TARGETS spillway_core spillway_spilling spillway_scheduler spillway_models spillway_shell
                spillway_storage spillway_trainer
        EXPORT SpillwayTargets)
install(EXPORT SpillwayTargets NAMESPACE spillway:: DESTINATION "${_package}")
# Includes start at the root of the tree: "trainer/session.h".
install(DIRECTORY core spilling scheduler models trainer
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/spillway" FILES_MATCHING PATTERN "*.h")

configure_package_config_file(cmake/SpillwayConfig.cmake.in
  "${CMAKE_BINARY_DIR}/SpillwayConfig.cmake" INSTALL_DESTINATION "${_package}")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/SpillwayConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/SpillwayConfig.cmake"
              "${CMAKE_BINARY_DIR}/SpillwayConfigVersion.cmake" cmake/Cudart.cmake
              cmake/Torch.cmake
        DESTINATION "${_package}")
