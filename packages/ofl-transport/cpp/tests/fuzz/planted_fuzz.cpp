// Fuzz target that must be found out: a reader with the defect that OFL_FUZZ_PLANT names.  Without one it is clean.

#include <cstdlib>
#include <string_view>

#include "planted.hpp"

namespace {

fuzz::Plant plant() {
  const char* const word = std::getenv("OFL_FUZZ_PLANT");
  const std::string_view name = word == nullptr ? "none" : word;
  if (name == "none") return fuzz::Plant::none;
  if (name == "overrun") return fuzz::Plant::overrun;
  if (name == "swallow") return fuzz::Plant::swallow;
  if (name == "stale") return fuzz::Plant::stale;
  if (name == "nameless") return fuzz::Plant::nameless;
  if (name == "torn") return fuzz::Plant::torn;
  std::fprintf(stderr, "OFL_FUZZ_PLANT: there is no plant of that name\n");
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Plant chosen = plant();
  std::uint64_t seed = 0;
  fuzz::Bytes stream;
  if (!fuzz::split(data, size, seed, stream)) return 0;
  fuzz::Choices choices(seed);
  fuzz::PlantedReader reader(chosen);
  fuzz::read_stream(reader, stream, choices);
  return 0;
}
