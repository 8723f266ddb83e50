#include "stream.hpp"

#include <string>
#include <string_view>

#include "rdma_terms.hpp"

namespace fuzz {

using ofl::wire::FrameHeader;
using ofl::wire::FrameType;

bool names_a_field(const char* clause) noexcept {
  static constexpr std::string_view kFields[] = {"magic",      "header_version", "type",    "flags", "sequence",
                                                 "body_bytes", "reserved",       "segment", "mark",  "taken"};
  std::string_view text = clause == nullptr ? "" : clause;
  if (text.starts_with("connect.") || text.starts_with("accept.") || text.starts_with("link.")) return true;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    for (const std::string_view field : kFields)
      if (word == field) return true;
    text.remove_prefix(word.size() < text.size() ? word.size() + 1 : word.size());
  }
  return false;
}

ofl::Landing Judge::landing(const FrameHeader& header) noexcept {
  HOLDS(!silent_, "nothing is read after a fault or the end");
  HOLDS(!in_body_ && expected_fault_ == nullptr, "a frame begins where the last one ended");
  HOLDS(stream_.size() - at_ >= sizeof header, "a header is read once it is whole");
  HOLDS(std::memcmp(&header, stream_.data() + at_, sizeof header) == 0, "the header is the stream's");
  HOLDS(ofl::wire::header_fault(header) == nullptr, "a header with a fault reaches nobody");
  in_body_ = true;
  if (header.body_bytes > kBodyBytesMax) {
    expected_fault_ = kOversized;
    return {nullptr, kOversized};
  }
  // Some bodies are read and dropped: replies to calls that were cancelled.
  memory_ = choices_.one_in(6) ? nullptr : std::make_unique<LandingMemory>(header.body_bytes);
  return {memory_ ? memory_->data() : nullptr, nullptr};
}

void Judge::completed(const FrameHeader& header) noexcept {
  HOLDS(!silent_ && in_body_ && expected_fault_ == nullptr, "what is complete had begun");
  HOLDS(std::memcmp(&header, stream_.data() + at_, sizeof header) == 0, "what is complete is what had begun");
  HOLDS(stream_.size() - at_ - sizeof header >= header.body_bytes, "a body is complete once it has arrived");
  if (memory_) judge_body(header);
  memory_.reset();
  in_body_ = false;
  at_ += sizeof header + header.body_bytes;
}

namespace {

template <typename Body>
Body copied(const LandingMemory& memory) noexcept {
  Body body;
  std::memcpy(&body, memory.data(), sizeof body);
  return body;
}

// What the rules of the negotiation say about a body: a clause, or nullptr.
const char* body_fault(const FrameHeader& header, const LandingMemory& memory) noexcept {
  switch (static_cast<FrameType>(header.type)) {
    case FrameType::connect:
      return ofl::wire::connect_fault(copied<ofl::wire::ConnectBody>(memory));
    case FrameType::accept: {
      ofl::wire::ConnectBody ours{};
      ours.transport = 1;
      ours.version_max = 7;
      ours.frame_bytes_max = Judge::kBodyBytesMax;
      return ofl::wire::accept_fault(copied<ofl::wire::AcceptBody>(memory), ours);
    }
    case FrameType::link:
      if (header.body_bytes != sizeof(ofl::wire::RdmaLinkBody)) return nullptr;
      return ofl::rdma_link_fault(copied<ofl::wire::RdmaLinkBody>(memory), ofl::Gid{});
    default:
      return nullptr;
  }
}

void judge_text(const FrameHeader& header, const LandingMemory& memory) noexcept {
  const std::string clean =
      ofl::wire::printable({reinterpret_cast<const char*>(memory.data()), std::size_t{header.body_bytes}});
  for (const char letter : clean) HOLDS(letter >= 0x20 && letter <= 0x7E, "text of a peer is made printable");
  HOLDS(clean.size() == header.body_bytes, "text within the limit keeps its size");
}

}  // namespace

// The bytes that landed are the stream's, and the rules of the negotiation can judge them.
void Judge::judge_body(const FrameHeader& header) const noexcept {
  HOLDS(std::memcmp(memory_->data(), body(), header.body_bytes) == 0, "the body is the stream's");
  const char* const fault = body_fault(header, *memory_);
  HOLDS(fault == nullptr || names_a_field(fault), "a fault names a field");
  if (static_cast<FrameType>(header.type) == FrameType::close) judge_text(header, *memory_);
}

void Judge::settle(std::size_t given, const char* fault, bool mid_frame) const noexcept {
  if (fault != nullptr) HOLDS(names_a_field(fault), "a fault names a field");
  if (expected_fault_ != nullptr) {
    HOLDS(fault == expected_fault_, "the fault is the receiving side's");
    return;
  }
  if (in_body_) {
    HOLDS(fault == nullptr && mid_frame, "a frame without its end is in progress");
    FrameHeader header;
    std::memcpy(&header, stream_.data() + at_, sizeof header);
    HOLDS(given - at_ < sizeof header + header.body_bytes, "a body that has arrived is complete");
    return;
  }
  HOLDS(given >= at_, "nothing is read that was not there");
  if (given - at_ < sizeof(FrameHeader)) {
    HOLDS(fault == nullptr && mid_frame == (given > at_), "part of a header is a frame in progress, and no fault");
    return;
  }
  FrameHeader header;
  std::memcpy(&header, stream_.data() + at_, sizeof header);
  const char* const expected = ofl::wire::header_fault(header);
  HOLDS(expected != nullptr, "a sound header that has arrived begins a frame");
  HOLDS(fault != nullptr && std::string_view(fault) == expected, "the fault is the header's");
}

}  // namespace fuzz
