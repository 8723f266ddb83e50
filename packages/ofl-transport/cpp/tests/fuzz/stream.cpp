#include "stream.hpp"

#include <string_view>

#if defined(__SANITIZE_ADDRESS__)  // GCC
#define OFL_FUZZ_POISON 1
#elif defined(__has_feature)  // clang
#if __has_feature(address_sanitizer)
#define OFL_FUZZ_POISON 1
#endif
#endif
#ifdef OFL_FUZZ_POISON
#include <sanitizer/asan_interface.h>
#endif

namespace fuzz {

using ofl::wire::FrameHeader;
using ofl::wire::FrameType;

void LandingMemory::poison(const std::byte* from, std::size_t bytes) noexcept {
#ifdef OFL_FUZZ_POISON
  __asan_poison_memory_region(from, bytes);
#else
  static_cast<void>(from);
  static_cast<void>(bytes);
#endif
}

void LandingMemory::unpoison(const std::byte* from, std::size_t bytes) noexcept {
#ifdef OFL_FUZZ_POISON
  __asan_unpoison_memory_region(from, bytes);
#else
  static_cast<void>(from);
  static_cast<void>(bytes);
#endif
}

bool names_a_field(const char* clause) noexcept {
  static constexpr std::string_view kFields[] = {
      "magic",   "header_version", "type",   "flags",  "sequence", "body_bytes", "reserved",
      "connect", "accept",         "refuse", "challenge", "proof", "link",       "placement",
  };
  const std::string_view text = clause == nullptr ? "" : clause;
  const std::string_view first = text.substr(0, text.find_first_of(" ."));
  for (const std::string_view field : kFields)
    if (first == field) return true;
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
  ++frames_;
}

// The bytes that landed are the stream's, and the rules of the negotiation can judge them.
void Judge::judge_body(const FrameHeader& header) const noexcept {
  HOLDS(std::memcmp(memory_->data(), body(), header.body_bytes) == 0, "the body is the stream's");
  const char* fault = nullptr;
  if (header.type == static_cast<std::uint8_t>(FrameType::connect)) {
    ofl::wire::ConnectBody offer;
    std::memcpy(&offer, memory_->data(), sizeof offer);
    fault = ofl::wire::connect_fault(offer);
  } else if (header.type == static_cast<std::uint8_t>(FrameType::accept)) {
    ofl::wire::AcceptBody answer;
    std::memcpy(&answer, memory_->data(), sizeof answer);
    ofl::wire::ConnectBody ours{};
    ours.version_max = 7;
    ours.frame_bytes_max = kBodyBytesMax;
    fault = ofl::wire::accept_fault(answer, ours);
  } else if (header.type == static_cast<std::uint8_t>(FrameType::close)) {
    const auto* text = reinterpret_cast<const char*>(memory_->data());
    const std::string clean = ofl::wire::printable({text, header.body_bytes});
    for (const char letter : clean) HOLDS(letter >= 0x20 && letter <= 0x7E, "text of a peer is made printable");
    HOLDS(clean.size() == header.body_bytes, "text within the limit keeps its size");
  }
  HOLDS(fault == nullptr || names_a_field(fault), "a fault names a field");
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
