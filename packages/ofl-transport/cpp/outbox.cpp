#include "outbox.hpp"

#include <cstring>

namespace ofl {

Outbox::Pending::Pending(const Outgoing& source, const std::optional<wire::PlacementRecord>& placement)
    : body(source.header().body_bytes > 0 ? new std::byte[source.header().body_bytes] : nullptr),
      part{body.get(), source.header().body_bytes},
      frame(source.header(), {&part, 1}),
      where(placement) {
  std::size_t at = 0;
  for (const Part& piece : source.parts()) {
    if (piece.bytes > 0) std::memcpy(body.get() + at, piece.base, piece.bytes);
    at += piece.bytes;
  }
  frame.advance(source.sent());
}

void Outbox::append(const Outgoing& frame, const std::optional<wire::PlacementRecord>& where) {
  frames_.emplace_back(frame, where);
  bytes_ += frame.size();
}

Progress Outbox::flush(Channel& channel) noexcept {
  while (!frames_.empty()) {
    auto& [body, part, frame, where] = frames_.front();
    const Progress progress = where ? channel.place(*where, frame) : channel.send(frame);
    if (progress != Progress::done) return progress;
    bytes_ -= frame.size();
    frames_.pop_front();
  }
  return Progress::done;
}

}  // namespace ofl
