// Fuzz target: arbitrary bytes in arbitrary segments, as an RDMA queue pair delivers them.  The rule of stream.hpp, and
// the ones of segments: one holds bytes of exactly one frame, and the first of a frame holds its whole header.

#include <algorithm>
#include <string_view>
#include <vector>

#include "rdma_segments.hpp"
#include "stream.hpp"

namespace {

using ofl::wire::FrameHeader;

FrameHeader header_at(fuzz::Bytes bytes) {
  FrameHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header;
}

// Mostly as a sender cuts: within the frame; at times anywhere.
std::size_t cut(fuzz::Bytes rest, std::size_t left, fuzz::Choices& choices) {
  std::size_t frame = left;
  if (left == 0 && rest.size() >= sizeof(FrameHeader)) frame = sizeof(FrameHeader) + header_at(rest).body_bytes;
  std::size_t bytes = choices.piece();
  if (!choices.one_in(32) && frame > 0) bytes = std::min(std::max(bytes, sizeof(FrameHeader)), frame);
  return std::min(bytes, rest.size());
}

enum class Says { nothing, segment, header };

// What the rules say about a segment that follows `left` bytes of a body in progress.
Says rule(fuzz::Bytes segment, std::size_t left) {
  if (left > 0) return segment.size() > left ? Says::segment : Says::nothing;
  if (segment.size() < sizeof(FrameHeader)) return Says::segment;
  const FrameHeader header = header_at(segment);
  if (ofl::wire::header_fault(header) != nullptr) return Says::header;
  return segment.size() - sizeof header > header.body_bytes ? Says::segment : Says::nothing;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t seed = 0;
  fuzz::Bytes stream;
  if (!fuzz::split(data, size, seed, stream)) return 0;
  fuzz::Choices choices(seed);
  fuzz::Judge judge(stream, choices);
  ofl::SegmentReader reader;
  std::size_t given = 0;
  std::size_t left = 0;
  while (given < stream.size()) {
    const fuzz::Bytes rest = stream.subspan(given);
    const fuzz::Bytes segment = rest.first(cut(rest, left, choices));
    const Says says = rule(segment, left);
    // A copy of exactly its size: the sanitizer sees a read beyond it.
    const std::vector<std::uint8_t> copy(segment.begin(), segment.end());
    const char* const clause = reader.take(std::as_bytes(std::span(copy)), judge);
    given += segment.size();
    if (says != Says::nothing) {
      HOLDS(clause != nullptr && fuzz::names_a_field(clause), "what breaks a rule is a fault that names its field");
      if (says == Says::header)
        HOLDS(std::string_view(clause) == ofl::wire::header_fault(header_at(segment)), "the fault is the header's");
      return 0;
    }
    judge.settle(given, clause, reader.mid_frame());
    if (clause != nullptr) return 0;
    const std::size_t begun = given - judge.consumed();
    left = begun == 0 ? 0 : sizeof(FrameHeader) + header_at(stream.subspan(judge.consumed())).body_bytes - begun;
    fuzz::take_back_sometimes(reader, judge, choices);
  }
  return 0;
}
