// Fuzz target that must be found out: readers with the defect that ENGRAM_FUZZ_PLANT names.  Without one they are clean.

#include <cstdlib>
#include <string_view>

#include "planted.hpp"

namespace {

fuzz::Plant plant() {
  static constexpr std::string_view kNames[] = {"none", "overread", "nameless", "apart", "tail", "echo", "padding", "trusting"};
  const char* const word = std::getenv("ENGRAM_FUZZ_PLANT");
  const std::string_view name = word == nullptr ? "none" : word;
  for (std::size_t i = 0; i < std::size(kNames); ++i)
    if (kNames[i] == name) return static_cast<fuzz::Plant>(i);
  std::fprintf(stderr, "ENGRAM_FUZZ_PLANT: there is no plant of that name\n");
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
  if (choices.one_in(2)) {
    std::vector<std::uint8_t> message(stream.begin(), stream.end());
    if (!choices.one_in(3)) fuzz::state_length(message);
    const fuzz::Copy copy(std::as_bytes(std::span(message)));
    fuzz::judge_request(reader, copy.bytes());
    // Whatever became of the header: the defects are behind it.
    if (message.size() >= contract::kHeaderBytes)
      fuzz::judge_body(reader, contract::kLookup, copy.bytes().subspan(contract::kHeaderBytes));
    return 0;
  }
  fuzz::Answers answers(stream, choices);
  const engram::ClientSettings settings = fuzz::any_settings(choices);
  fuzz::judge_lookup(reader, answers, settings, choices, choices.below(SIZE_MAX));
  return 0;
}
