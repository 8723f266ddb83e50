// Fuzz target: arbitrary messages, and bodies, to what a server reads requests with.  See request_judge.hpp for the rule.

#include <algorithm>
#include <string>
#include <vector>

#include "request_judge.hpp"

namespace {

struct LibraryReader {
  std::optional<engram::Fault> header(engram::Bytes message, engram::wire::Header& header) {
    return engram::parse_header(message, header);
  }
  std::optional<engram::Fault> open(engram::Bytes body, engram::OpenView& open) { return engram::parse_open(body, open); }
  std::optional<engram::Fault> lookup(engram::Bytes body, engram::LookupView& lookup) {
    return engram::parse_lookup(body, lookup);
  }
  std::optional<engram::Fault> stats(engram::Bytes body) { return engram::parse_stats(body); }
  engram::Address salvage(engram::Bytes message) { return engram::salvage(message); }
  engram::Message refusal(const engram::Address& to, const engram::Fault& fault) { return engram::refusal(to, fault); }
};

// Text of any length, of characters of one to four bytes.
std::string any_text(std::size_t bytes, fuzz::Choices& choices) {
  static constexpr const char* kCharacters[] = {"a", ".", "\u00e9", "\u20ac", "\U0001F600"};
  std::string text;
  while (text.size() < bytes) text += kCharacters[choices.below(std::size(kCharacters))];
  return text;
}

// Whatever a fault says, a refusal leaves: its texts are cut to what one may hold, at a character.
void judge_cut(fuzz::Choices& choices) {
  const engram::Fault fault{engram::wire::Code::limit, std::string(choices.below(300), 'f'),
                            any_text(choices.below(1100), choices)};
  const fuzz::Copy refusal(engram::refusal({engram::wire::Op::lookup, choices.below(SIZE_MAX)}, fault));
  HOLDS(contract::refusal(refusal.bytes()).empty(), "a refusal is a sound message");
  const contract::Refusal said = contract::refusal_of(refusal.bytes());
  HOLDS(fault.field.starts_with(said.field) && said.field.size() == std::min<std::size_t>(fault.field.size(), 128),
        "a field is cut to 128 bytes");
  HOLDS(fault.detail.starts_with(said.detail) && said.detail.size() + 3 >= std::min<std::size_t>(fault.detail.size(), 512),
        "a clause is cut to 512 bytes, less a character that does not fit");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t seed = 0;
  fuzz::Bytes stream;
  if (!fuzz::split(data, size, seed, stream)) return 0;
  fuzz::Choices choices(seed);
  LibraryReader reader;
  if (choices.one_in(16)) judge_cut(choices);
  if (choices.one_in(4)) {
    // A body of any operation, whatever it was written as.
    const fuzz::Copy body(std::as_bytes(stream));
    fuzz::judge_body(reader, static_cast<std::uint8_t>(1 + choices.below(3)), body.bytes());
    return 0;
  }
  std::vector<std::uint8_t> message(stream.begin(), stream.end());
  if (!choices.one_in(3)) fuzz::state_length(message);
  const fuzz::Copy copy(std::as_bytes(std::span(message)));
  fuzz::judge_request(reader, copy.bytes());
  return 0;
}
