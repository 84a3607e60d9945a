#pragma once

#include <sys/resource.h>

namespace spillway::testing {

/// Lowers a soft limit of this process during its lifetime: RLIMIT_FSIZE, RLIMIT_NOFILE...
class ResourceLimit {
 public:
  ResourceLimit(__rlimit_resource_t resource, rlim_t value) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit lowered{value, before_.rlim_max};
    setrlimit(resource_, &lowered);
  }
  ~ResourceLimit() { setrlimit(resource_, &before_); }
  ResourceLimit(const ResourceLimit&) = delete;
  ResourceLimit& operator=(const ResourceLimit&) = delete;

 private:
  const __rlimit_resource_t resource_;
  rlimit before_{};
};

}  // namespace spillway::testing
