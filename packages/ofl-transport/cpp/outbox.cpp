#include "outbox.hpp"

#include <cstring>

namespace ofl {

namespace {

bool stays(const Part& part, const Memory* lent) noexcept {
  return lent != nullptr && part.bytes > 0 && lent->contains(part.base, part.bytes);
}

std::size_t bytes_to_copy(const Outgoing& frame) noexcept {
  std::size_t bytes = 0;
  for (const Part& part : frame.parts())
    if (!stays(part, frame.lent())) bytes += part.bytes;
  return bytes;
}

// The same parts, those that do not stay in `copied`.
std::vector<Part> kept_parts(const Outgoing& frame, std::byte* copied) {
  std::vector<Part> parts;
  parts.reserve(frame.parts().size());
  for (const Part& part : frame.parts()) {
    if (stays(part, frame.lent())) {
      parts.push_back(part);
    } else if (part.bytes > 0) {
      std::memcpy(copied, part.base, part.bytes);
      parts.push_back({copied, part.bytes});
      copied += part.bytes;
    }
  }
  return parts;
}

}  // namespace

Outbox::Pending::Pending(const Outgoing& source, const std::optional<wire::PlacementRecord>& placement)
    : lent(source.lent() != nullptr ? source.lent()->shared_from_this() : nullptr),
      copied_bytes(bytes_to_copy(source)),
      copied(new std::byte[copied_bytes]),
      parts(kept_parts(source, copied.get())),
      frame(source.header(), parts, lent.get()),
      where(placement) {
  frame.advance(source.sent());
}

Outbox::~Outbox() { clear(); }

void Outbox::clear() noexcept {
  while (!frames_.empty()) drop_front();
}

void Outbox::append(const Outgoing& frame, const std::optional<wire::PlacementRecord>& where) {
  const Pending& pending = frames_.emplace_back(frame, where);
  if (pending.lent) pending.lent->lend();
  copied_bytes_ += pending.copied_bytes;
}

void Outbox::drop_front() noexcept {
  const Pending& pending = frames_.front();
  copied_bytes_ -= pending.copied_bytes;
  if (pending.lent) pending.lent->give_back();
  frames_.pop_front();
}

Progress Outbox::flush(Channel& channel) noexcept {
  while (!frames_.empty()) {
    Pending& pending = frames_.front();
    const Progress progress = pending.where ? channel.place(*pending.where, pending.frame) : channel.send(pending.frame);
    if (progress != Progress::done) return progress;
    drop_front();
  }
  return Progress::done;
}

}  // namespace ofl
