// Frames that the wire did not take at once, in order.  Owns copies, but for parts in lent memory, which stay where they
// are; bounded by its user through `copied_bytes` and `size`.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "backend.hpp"

namespace ofl {

class Outbox {
 public:
  bool empty() const noexcept { return frames_.empty(); }
  std::size_t size() const noexcept { return frames_.size(); }
  // Of memory that only the outbox holds.
  std::size_t copied_bytes() const noexcept { return copied_bytes_; }

  ~Outbox();

  // Keeps the frame, to go on where it stopped; `where`: a reply that is placed there.  Throws std::bad_alloc.
  void append(const Outgoing& frame, const std::optional<wire::PlacementRecord>& where = {});

  // Forgets all that was not sent.
  void clear() noexcept;

  // Sends what the wire takes now.
  Progress flush(Channel& channel) noexcept;

 private:
  struct Pending {
    Pending(const Outgoing& frame, const std::optional<wire::PlacementRecord>& where);
    std::shared_ptr<Memory> lent;
    std::size_t copied_bytes;
    std::unique_ptr<std::byte[]> copied;
    std::vector<Part> parts;
    Outgoing frame;
    std::optional<wire::PlacementRecord> where;
  };

  void drop_front() noexcept;

  std::deque<Pending> frames_;  // a deque keeps a Pending where it is
  std::size_t copied_bytes_ = 0;
};

}  // namespace ofl
