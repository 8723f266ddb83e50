// The first inputs of a fuzzer as files, for the seed programs of this package and of those that build on it.  Knows no wire.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace fuzz {

// An input as harness.hpp splits it: its choices, then what a seed program adds.
class SeedInput {
 public:
  explicit SeedInput(std::uint64_t choices) { add(&choices, sizeof choices); }
  const std::vector<unsigned char>& bytes() const { return bytes_; }

 protected:
  void add(const void* from, std::size_t bytes) {
    const std::size_t before = bytes_.size();
    bytes_.resize(before + bytes);
    if (bytes > 0) std::memcpy(bytes_.data() + before, from, bytes);
  }

 private:
  std::vector<unsigned char> bytes_;
};

// main() of a seed program, whose one argument is a folder.
template <typename Input>
int write_seeds(int count, char** words, const std::vector<Input>& inputs) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", words[0]);
    return 2;
  }
  int number = 0;
  for (const SeedInput& input : inputs) {
    const std::string path = std::string(words[1]) + "/seed-" + std::to_string(++number);
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    const bool written = file != nullptr && std::fwrite(input.bytes().data(), 1, input.bytes().size(), file) ==
                                                input.bytes().size();
    if (file == nullptr || std::fclose(file) != 0 || !written) {
      std::fprintf(stderr, "%s cannot be written\n", path.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace fuzz
