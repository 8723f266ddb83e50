// Frames that the wire did not take at once, in order.  Owns copies; bounded by its user through `bytes`.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>

#include "backend.hpp"

namespace ofl {

class Outbox {
 public:
  bool empty() const noexcept { return frames_.empty(); }
  std::size_t bytes() const noexcept { return bytes_; }

  // Keeps a copy of the frame, to go on where it stopped; `where`: a reply that is placed there.  Throws std::bad_alloc.
  void append(const Outgoing& frame, const std::optional<wire::PlacementRecord>& where = {});

  // Sends what the wire takes now.
  Progress flush(Channel& channel) noexcept;

 private:
  struct Pending {
    Pending(const Outgoing& frame, const std::optional<wire::PlacementRecord>& where);
    std::unique_ptr<std::byte[]> body;
    Part part;
    Outgoing frame;
    std::optional<wire::PlacementRecord> where;
  };

  std::deque<Pending> frames_;  // a deque keeps `part` where `frame` points
  std::size_t bytes_ = 0;
};

}  // namespace ofl
