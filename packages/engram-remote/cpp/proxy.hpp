// The client's one thread of work: serves tickets in their order and hand-over blocks as they ask, and keeps the connection.
// It makes no call that another thread of the process could hold up, no CUDA call, and takes no interpreter lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "client_serving.hpp"
#include "client_tickets.hpp"
#include "proxy_handover.hpp"

namespace engram {

class Proxy {
 public:
  Proxy(const ClientSettings& settings, const Stagings& stagings, ClientCounters& counters, Serving& serving,
        Tickets& tickets, Handovers& handovers);
  ~Proxy() { close(); }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  void start();
  // Has the proxy register staging that was added; returns once it did.
  Outcome register_staging();
  // There is a new block, or a lookup.
  void poke() { tickets_.poke(); }
  // Serves what is open from the local shards, and returns once the thread has ended.
  void close() noexcept;

 private:
  void run();
  bool turn();
  void rest();
  void serve_ticket();
  void serve_registration();

  const ClientSettings& settings_;
  const Stagings& stagings_;
  ClientCounters& counters_;
  Serving& serving_;
  Tickets& tickets_;
  Handovers& handovers_;
  const Nanoseconds spin_;
  std::thread thread_;
  std::atomic<bool> closing_{false};

  std::mutex registering_;  // one caller of register_staging at a time
  std::mutex mutex_;        // of the next four; the proxy alone changes them
  std::condition_variable registered_;
  std::uint64_t registrations_done_ = 0;
  Outcome registration_;
  bool ended_ = false;
  std::atomic<std::uint64_t> registrations_wanted_{0};
};

}  // namespace engram
