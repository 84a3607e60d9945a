#pragma once

#include <string>

#include "runs/config/findings.h"
#include "runs/config/yaml_node.h"

namespace spillway::python {

/// What `read` makes of a document. Throws ConfigErrors with all problems.
template <typename Read>
auto read_document(const std::string& document, const Read& read) {
  Findings findings;
  auto value = read(parse_yaml(document), findings);
  findings.throw_if_any();
  return value;
}

}  // namespace spillway::python
