#pragma once

#include <chrono>
#include <string>
#include <vector>

/// What c10d's header of ProcessGroupGloo names of Gloo, whose own headers LibTorch's package
/// lacks. That header holds objects of Gloo by pointer, so nothing here decides a layout
/// (tests/trainer/c10d/gloo_layout_test.cpp). Nobody here makes an object of these classes.
namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

namespace rendezvous {
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous

}  // namespace gloo
