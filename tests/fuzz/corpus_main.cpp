// Runs kept inputs through a fuzz target that is built without libFuzzer. Usage: TARGET FOLDER...

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "tests/fuzz/input.h"

namespace {

void run(const std::filesystem::path& path) {
  std::cout << path.string() << std::endl;  // flushed: the next input may crash
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  int num_inputs = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      run(entry.path());
      ++num_inputs;
    }
  }
  std::cout << num_inputs << " inputs\n";
  return num_inputs > 0 ? 0 : 1;
}
