#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <string>

#include "spillway/data_source.h"
#include "spillway/exported.h"
#include "spillway/model_factory.h"

/// The parts of spillway._core: each adds its classes and functions to the module.
namespace spillway::python {

/// A model to train, and what identifies it beyond shapes: TrialConfig::contract.
struct PythonModel {
  ModelFactory make;
  std::map<std::string, std::string> contract;
  std::string path;   ///< of a file
  ExportedInfo info;  ///< likewise
};

/// Samples for training and evaluation.
struct PythonData {
  std::shared_ptr<const DataSplit> split;
};

void bind_errors(nanobind::module_& module);
void bind_values(nanobind::module_& module);
void bind_models(nanobind::module_& module);
void bind_session(nanobind::module_& module);
void bind_runs(nanobind::module_& module);

}  // namespace spillway::python
