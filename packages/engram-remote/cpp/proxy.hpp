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
  Proxy(const ClientSettings& settings, Stagings& stagings, ClientCounters& counters, Serving& serving,
        Tickets& tickets, Handovers& handovers);
  ~Proxy() { close(); }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  void start();
  // Has the proxy register a new one and take it in; returns once it did.  index: its number.  On a failure nothing knows of
  // its memory.
  Outcome add_staging(std::unique_ptr<Staging> staging, std::uint32_t& index);
  // There is a new block, or a lookup.
  void poke() { tickets_.poke(); }
  // Serves what is open from the local shards, and returns once the thread has ended.
  void close() noexcept;

 private:
  void run();
  bool turn();
  void rest();
  void serve_ticket();
  void serve_addition();

  const ClientSettings& settings_;
  Stagings& stagings_;
  ClientCounters& counters_;
  Serving& serving_;
  Tickets& tickets_;
  Handovers& handovers_;
  const Nanoseconds spin_;
  std::thread thread_;
  std::atomic<bool> closing_{false};

  std::mutex adding_;  // one caller of add_staging at a time
  std::mutex mutex_;   // of the next six; the first is the caller's until `additions_wanted_` says so, the rest the proxy's
  std::unique_ptr<Staging> new_;
  std::condition_variable added_;
  std::uint64_t additions_done_ = 0;
  Outcome addition_;
  std::uint32_t number_ = 0;
  bool ended_ = false;
  std::atomic<std::uint64_t> additions_wanted_{0};
};

}  // namespace engram
