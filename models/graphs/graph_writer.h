#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "models/graphs/exported_spec.h"

namespace spillway {

/// Writes a graph with calls of another one, in which values have new numbers. First the values
/// that the new graph gets, then its calls.
class GraphWriter {
 public:
  using Json = nlohmann::json;

  /// `num_given`: values that `from` gets.
  GraphWriter(const ExportedGraph& from, int num_given);

  /// The next value that the graph gets. Returns its number.
  int give() { return num_values_++; }
  /// Value `old` of the other graph is `number` here.
  void set(int old, int number) { numbers_[old] = number; }
  /// Of a value of the other graph, which must have one.
  int number(int old) const { return numbers_.at(old); }

  /// Copies call `node` of the other graph, and returns it: its arguments may be changed.
  Json& copy(std::size_t node);
  /// Adds a call with one output and returns the number of that.
  int add(const char* op, const char* overload, Json args);

  /// The graph, which gives value `result`.
  ExportedGraph graph(int result) const;

 private:
  void renumber(Json& argument) const;

  const ExportedGraph& from_;
  Json calls_;               // of the other graph
  std::vector<int> firsts_;  // outputs of its calls
  Json nodes_ = Json::array();
  std::map<int, int> numbers_;  // by value of the other graph
  int num_values_ = 0;
};

/// An argument that is a value.
inline GraphWriter::Json value_json(int number) { return {{"value", number}}; }

}  // namespace spillway
