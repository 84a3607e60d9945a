#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "spillway/model_factory.h"
#include "spillway/spec.h"
#include "spillway/torch_pieces.h"

/// Models that PyTorch has exported into a file of operators and weights, see docs/formats.md.
namespace spillway {

struct DataSplit;  // spillway/data_source.h

/// What a program needs to know of such a file before it trains the model.
struct ExportedInfo {
  /// A part of each sample, which is one row.
  struct Input {
    std::string name;                 ///< of the module's argument
    std::int64_t begin = 0;           ///< its first value in the row
    std::vector<std::int64_t> shape;  ///< without the sample
    std::string dtype;                ///< "float32", "int64" or "bool"
    std::int64_t limit = 0;           ///< of indices, which are below it; 0: it has none
  };

  std::string name;                  ///< of the module's class
  std::int64_t batch_size = 1;       ///< samples of a virtual node: the graphs have fixed shapes
  DType dtype = DType::f32;          ///< f32 or bf16: what TrainConfig::dtype must be
  DType row_dtype = DType::f32;      ///< type of the values of a row: f32 or i64
  std::int64_t row_elements = 0;     ///< values of a row
  std::vector<Input> inputs;         ///< parts of a row; they may overlap
  std::int64_t num_layers = 0;       ///< with the loss, without pieces: the most shards
  std::vector<std::string> metrics;  ///< what evaluations give beside the loss
  std::string xxh3;                  ///< of the file's bytes: part of a trial's contract
};

/// Reads all of a file. Throws CorruptData if it is no valid model, NewerFormat, IoError, and Error
/// if there is no such file.
ExportedInfo exported_info(const std::filesystem::path& file);

/// Trains the model in a file, which must not change while it is used. Initial weights are those of
/// the file, whatever the seed is. Throws like exported_info(), also if this LibTorch lacks an
/// operator of the model.
///
/// With another size of virtual node than ExportedInfo::batch_size the factory throws ConfigError
/// (`train.virtual_nodes`), and with another TrainConfig::dtype submitting does (`train.dtype`).
///
/// Put ExportedInfo::xxh3 into TrialConfig::contract, so that a trial does not resume with other
/// weights.
///
/// `pieces` divides layers, also those that are larger than a device. The number of pieces changes
/// the order of additions and, where dropout is inside an attention or MLP, which elements are
/// dropped; so put it into the contract, too. ConfigError (`model.pieces.attention`, ...) if no
/// layer can be divided so.
///
/// If the environment variable SPILLWAY_CHECK_GRAPHS is 1, each operator is followed by a check
/// that it has changed no input, parameter or constant of its layer. This is slow.
ModelFactory exported_factory(const std::filesystem::path& file, const TorchPieces& pieces = {});

/// Those of the wanted pieces that divide some layer of the model; 1 for other kinds. Throws like
/// exported_info().
TorchPieces possible_pieces(const std::filesystem::path& file, const TorchPieces& wanted);

/// Samples for such a model from a safetensors file: a tensor [N, shape...] for each input, by its
/// name, or one tensor `rows` [N, row_elements]. The values of float32 rows may be F32, those of
/// either may be whole numbers and BOOL. The file is read on demand and must not change. Split by
/// split(). Throws ConfigError (`data.path`, `data.eval_fraction`).
std::shared_ptr<const DataSplit> exported_data(const std::filesystem::path& file,
                                               const ExportedInfo& info, double eval_fraction);

}  // namespace spillway
