#pragma once

#include "models/graphs/exported_spec.h"
#include "spillway/torch_pieces.h"

namespace spillway {

/// Divides layers of a model into pieces, which are layers of their own. Parts of a parameter take
/// its place. Throws ConfigError (`model.pieces.attention`, ...) if pieces of a kind are wanted and
/// no layer can be divided; it says why for one of them.
void divide(ExportedSpec& spec, const TorchPieces& pieces);

/// Those of the wanted pieces that divide some layer; 1 for other kinds.
TorchPieces possible_pieces(const ExportedSpec& spec, const TorchPieces& wanted);

}  // namespace spillway
