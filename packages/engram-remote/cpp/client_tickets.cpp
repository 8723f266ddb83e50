#include "client_tickets.hpp"

#include <algorithm>
#include <chrono>

namespace engram {

namespace {

// The staging is a ticket's lowest part.
constexpr std::uint64_t kStagingMask = kStagingsMax - 1;
static_assert((kStagingsMax & kStagingMask) == 0);

std::chrono::steady_clock::time_point moment(Nanoseconds deadline) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline));
}

}  // namespace

Outcome Tickets::enqueue(std::span<const engram_batch> batches, std::uint64_t rows, std::uint32_t staging,
                         std::uint64_t& ticket) {
  {
    const std::scoped_lock lock(mutex_);
    if (closed_) return failure(ENGRAM_CLOSED, "the client was closed");
    Place& place = places_[staging];
    if (place.state == Place::State::queued || place.state == Place::State::running)
      return failure(ENGRAM_INVALID, "staging " + std::to_string(staging) + " has a lookup that has not ended");
    place.state = Place::State::queued;
    place.ticket = ++lookups_ * kStagingsMax + staging;
    place.staging = staging;
    place.count = static_cast<std::uint32_t>(batches.size());
    place.rows = rows;
    std::copy(batches.begin(), batches.end(), place.batches.begin());
    ticket = place.ticket;
    const std::size_t queued = queued_.load(std::memory_order_relaxed);
    queue_[(first_ + queued) % kStagingsMax] = staging;
    queued_.store(queued + 1, std::memory_order_release);  // pairs with any
  }
  work_.notify_one();
  return {};
}

Tickets::Place* Tickets::next() {
  const std::scoped_lock lock(mutex_);
  const std::size_t queued = queued_.load(std::memory_order_relaxed);
  if (queued == 0) return nullptr;
  Place& place = places_[queue_[first_]];
  first_ = (first_ + 1) % kStagingsMax;
  queued_.store(queued - 1, std::memory_order_relaxed);
  place.state = Place::State::running;
  return &place;
}

void Tickets::end(Place& place, Served&& served) {
  {
    const std::scoped_lock lock(mutex_);
    place.served = std::move(served);
    place.state = Place::State::ended;
    place.ended_ticket.store(place.ticket, std::memory_order_release);  // pairs with wait's look
  }
  ended_.notify_all();
}

Outcome Tickets::wait(std::uint64_t ticket, Nanoseconds deadline, Nanoseconds spin, engram_result& result) {
  Place& place = places_[ticket & kStagingMask];
  const Nanoseconds looks_end = std::min(deadline, now_ns() + spin);
  while (place.ended_ticket.load(std::memory_order_acquire) != ticket && now_ns() < looks_end) relax();
  std::unique_lock lock(mutex_);
  const auto over = [&] { return place.ticket != ticket || place.state == Place::State::ended || place.state == Place::State::idle; };
  const bool ended = ended_.wait_until(lock, moment(deadline), over);
  if (ticket == 0 || place.ticket != ticket || place.state == Place::State::idle)
    return failure(ENGRAM_UNKNOWN, "no lookup has this ticket: it was waited for already, or never made");
  if (!ended) return failure(ENGRAM_DEADLINE, "the deadline of the wait passed first; the lookup goes on");
  place.state = Place::State::idle;
  result = place.served.result;
  return std::move(place.served.outcome);
}

void Tickets::close() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
  }
  work_.notify_one();
}

void Tickets::wait_for_work(Nanoseconds span) {
  std::unique_lock lock(mutex_);
  work_.wait_for(lock, std::chrono::nanoseconds(span),
                 [&] { return poked_ || closed_ || queued_.load(std::memory_order_relaxed) != 0; });
  poked_ = false;
}

void Tickets::poke() {
  {
    const std::scoped_lock lock(mutex_);
    poked_ = true;
  }
  work_.notify_one();
}

}  // namespace engram
