// Fuzz target: arbitrary replies, refusals, and sound replies with damage, to what a client reads them with.  See
// reply_judge.hpp for the rule.

#include "reply_judge.hpp"

namespace {

struct LibraryReader {
  engram::OpenAnswer open(contract::Bytes reply, const engram::ClientSettings& settings, std::uint64_t batch) {
    return engram::judge_open(reply, settings, batch);
  }
  engram::Reason lookup(contract::Bytes reply, const engram::ClientSettings& settings, const engram::ClientLookup& lookup,
                        std::size_t wanted, std::uint64_t batch, std::uint64_t asked_sum) {
    return engram::judge_lookup(reply, settings, lookup, wanted, batch, asked_sum);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t seed = 0;
  fuzz::Bytes stream;
  if (!fuzz::split(data, size, seed, stream)) return 0;
  fuzz::Choices choices(seed);
  fuzz::Answers answers(stream, choices);
  const engram::ClientSettings settings = fuzz::any_settings(choices);
  const std::uint64_t batch = choices.below(SIZE_MAX);
  LibraryReader reader;
  if (choices.one_in(3)) {
    fuzz::judge_open(reader, answers, settings, batch);
  } else {
    fuzz::judge_lookup(reader, answers, settings, choices, batch);
  }
  return 0;
}
