#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace spillway {

struct Model;  // spillway/model.h

/// Makes a model for virtual nodes of `vn_size` samples.
using ModelFactory = std::function<std::unique_ptr<Model>(std::int64_t vn_size)>;

}  // namespace spillway
