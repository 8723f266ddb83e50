// How an RDMA connection broke, in words.
#pragma once

#ifdef OFL_VERBS

#include <atomic>

#include "verbs.hpp"

namespace ofl {

// A clause that names the status of a completion and what it means here.
const char* completion_clause(ibv_wc_status status) noexcept;

// The first fault of a connection, from either side and any thread.  A rule that the peer broke goes before what the wire
// then said about it.
class RdmaFault {
 public:
  void broken_by_peer(const char* clause) noexcept { set(peer_, clause); }
  void broken_wire(const char* clause) noexcept { set(wire_, clause); }

  bool any() const noexcept { return text() != nullptr; }
  bool by_peer() const noexcept { return peer_.load(std::memory_order_acquire) != nullptr; }
  const char* text() const noexcept {
    const char* clause = peer_.load(std::memory_order_acquire);
    return clause != nullptr ? clause : wire_.load(std::memory_order_acquire);
  }

 private:
  static void set(std::atomic<const char*>& place, const char* clause) noexcept {
    const char* none = nullptr;
    place.compare_exchange_strong(none, clause, std::memory_order_acq_rel);
  }

  std::atomic<const char*> peer_{nullptr};
  std::atomic<const char*> wire_{nullptr};
};

}  // namespace ofl

#endif
