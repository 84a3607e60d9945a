#include "python/src/module.h"

/// The C++ part of the package `spillway`. Its functions take documents as JSON text, which is
/// YAML too, so that keys, checks and messages are those of configuration files.
NB_MODULE(_core, module) {
  using namespace spillway::python;
  module.doc() = "The C++ part of Spillway; use the package spillway.";
  bind_errors(module);
  bind_values(module);
  bind_models(module);
  bind_session(module);
  bind_runs(module);
}
