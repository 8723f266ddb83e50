// Shared by the parts of the fuzz driver: what a compiler with libFuzzer would bring, for one without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

using Input = std::vector<std::uint8_t>;
using Random = std::mt19937_64;

// Which branches the inputs so far have taken, counted in powers of two.  Fed by the compiler's instrumentation.
class Coverage {
 public:
  void begin() noexcept;
  // What the run since `begin` did that no run did before.
  std::size_t news() noexcept;
  std::size_t known() const noexcept { return known_; }

 private:
  std::size_t known_ = 0;
};

// What the targets' messages look like, so that mutations find where one begins.
struct Format {
  std::uint32_t magic;  // the first bytes of every message
  std::size_t header_bytes;
  std::span<const std::uint64_t> numbers;  // at whose edges rules change
  Input (*message)(Random& random);        // any sound one
};
// Defined beside the targets.
const Format& format();

// A changed copy: bits, numbers, blocks, messages, or the head of one and the tail of another.
Input mutated(const Input& input, const Input& other, std::size_t bytes_max, Random& random);

// An input that ends the process is written to a file whose name begins with `prefix`, and the file is named on stderr.
// So is one that runs for longer than `seconds`.
void watch(const std::string& prefix, unsigned seconds);
// Runs the target on one input, under the watch.
void run_one(const Input& input);

}  // namespace fuzz
