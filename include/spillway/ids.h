#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace spillway {

/// An integer that cannot be mixed up with another kind of id.
template <typename Tag>
struct Id {
  std::uint32_t value = 0xFFFFFFFFu;

  constexpr Id() = default;
  constexpr explicit Id(std::uint32_t v) : value(v) {}
  constexpr explicit Id(std::size_t v) : value(static_cast<std::uint32_t>(v)) {}
  constexpr explicit Id(int v) : value(static_cast<std::uint32_t>(v)) {}
  constexpr bool valid() const { return value != 0xFFFFFFFFu; }
  constexpr std::size_t index() const { return value; }
  constexpr auto operator<=>(const Id&) const = default;
};

/// One model in training. Numbered in order of submission.
using JobId = Id<struct JobTag>;
/// A device of this session, as a position in its device list.
using DeviceId = Id<struct DeviceTag>;

/// Number of a started action; grows by one, so `a < b` means a was started first.
using ActionId = std::uint64_t;

/// Layers, units, ops, buffers and the like are numbered from 0 by their place in a vector.
constexpr std::size_t at(int position) { return static_cast<std::size_t>(position); }

}  // namespace spillway

template <typename Tag>
struct std::hash<spillway::Id<Tag>> {
  std::size_t operator()(spillway::Id<Tag> id) const noexcept { return id.value; }
};
