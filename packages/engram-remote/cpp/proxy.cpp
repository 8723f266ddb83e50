#include "proxy.hpp"

#include <ctime>

#include <sched.h>
#include <sys/prctl.h>

#include "process.hpp"

namespace engram {

namespace {

// Whoever looks without sleeping on the only CPU keeps away what it waits for.
bool one_cpu() noexcept {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < 2;
}

void nap(Nanoseconds span) noexcept {
  const timespec length{.tv_sec = 0, .tv_nsec = static_cast<long>(span)};
  ::nanosleep(&length, nullptr);
}

}  // namespace

Proxy::Proxy(const ClientSettings& settings, Stagings& stagings, ClientCounters& counters, Serving& serving,
             Tickets& tickets, Handovers& handovers)
    : settings_(settings),
      stagings_(stagings),
      counters_(counters),
      serving_(serving),
      tickets_(tickets),
      handovers_(handovers),
      spin_(one_cpu() ? 0 : settings.spin) {}

void Proxy::start() {
  thread_ = start_quiet_thread("engram-proxy", [this] { run(); });
}

void Proxy::close() noexcept {
  tickets_.close();  // first: what is taken after the proxy's last look would never end
  closing_.store(true, std::memory_order_release);
  if (thread_.joinable()) thread_.join();
}

void Proxy::run() {
  ::prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds; or a nap of ten microseconds takes sixty
  Nanoseconds worked = now_ns();
  Nanoseconds looked = worked;
  while (!closing_.load(std::memory_order_acquire)) {
    const bool busy = turn();
    const Nanoseconds now = now_ns();
    if (now - looked >= kLifeLook) {
      serving_.upkeep();
      looked = now;
    }
    if (busy) worked = now;
    if (busy || now - worked < spin_) {
      relax();
    } else {
      rest();
    }
  }
  serving_.close();
  // What is open ends locally.  Each block is looked at once: its stream may ask on and on, and nobody answers it later.
  turn();
  while (tickets_.any()) serve_ticket();
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
  }
  added_.notify_all();
}

bool Proxy::turn() {
  bool busy = false;
  if (additions_wanted_.load(std::memory_order_acquire) != additions_done_) {
    serve_addition();
    busy = true;
  }
  if (tickets_.any()) {
    serve_ticket();
    busy = true;
  }
  return handovers_.turn(serving_, counters_) || busy;
}

void Proxy::rest() {
  if (handovers_.any()) {
    nap(kHandoverNap);
  } else {
    tickets_.wait_for_work(kLifeLook);
  }
}

void Proxy::serve_ticket() {
  Tickets::Place* const place = tickets_.next();
  if (place == nullptr) return;
  const ClientLookup lookup{{place->batches.data(), place->count}, place->rows};
  tickets_.end(*place, serving_.serve(lookup, *stagings_.at(place->staging)));
}

void Proxy::serve_addition() {
  std::unique_ptr<Staging> staging;
  {
    const std::scoped_lock lock(mutex_);
    staging = std::move(new_);
  }
  // Registered before anybody else can see it: of one that cannot be, no other connection may know.
  Outcome outcome = serving_.register_next(*staging);
  std::uint32_t number = 0;
  if (outcome) number = static_cast<std::uint32_t>(stagings_.add(std::move(staging)));
  staging.reset();  // a failure is told once the memory is the caller's again
  {
    const std::scoped_lock lock(mutex_);
    addition_ = std::move(outcome);
    number_ = number;
    ++additions_done_;
  }
  added_.notify_all();
}

Outcome Proxy::add_staging(std::unique_ptr<Staging> staging, std::uint32_t& index) {
  const std::scoped_lock one(adding_);
  if (closing_.load(std::memory_order_acquire)) return failure(ENGRAM_CLOSED, "the client was closed");
  std::unique_lock lock(mutex_);
  new_ = std::move(staging);
  const std::uint64_t wanted = additions_wanted_.fetch_add(1, std::memory_order_release) + 1;
  poke();
  added_.wait(lock, [&] { return additions_done_ >= wanted || ended_; });
  if (additions_done_ < wanted) {
    new_.reset();
    return failure(ENGRAM_CLOSED, "the client was closed");
  }
  if (addition_) index = number_;
  return addition_;
}

}  // namespace engram
