// The thread that connects in the background, with growing pauses, and hands each connection over to the proxy.
//
// States: idle (the proxy has a connection) -> pausing -> connecting -> offering (the proxy has not taken it yet) -> idle.
// A refusal that asking again does not change is asked again after the longest pause, counted and said on stderr once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "client_connection.hpp"
#include "client_counters.hpp"

namespace engram {

class Connector {
 public:
  Connector(const ClientSettings& settings, const Stagings& stagings, ClientCounters& counters);
  ~Connector() { end(); }
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // One attempt now, in the caller's thread; before `start`.
  Outcome connect_once(std::unique_ptr<Connection>& connection);
  // connected: the proxy has a connection already.
  void start(bool connected);
  // Returns once an attempt under way has ended, connect_timeout_ns at the latest.
  void end() noexcept;

  // The proxy's:
  bool offers() const noexcept { return offers_.load(std::memory_order_acquire); }
  std::unique_ptr<Connection> take();
  // It was ended, for that reason; the next one comes in the background.
  void lost(std::unique_ptr<Connection> connection, const std::string& why);

  // Anyone's: the wire, or why there is none.
  bool connected(std::string& text);
  // After fork(), in the child.
  void abandon() noexcept;

 private:
  void run();
  void attempt(std::unique_lock<std::mutex>& lock);
  Outcome open(std::unique_ptr<Connection>& connection, bool& final);
  Nanoseconds pause(bool final);
  void tell(const Outcome& outcome, bool final);

  const ClientSettings& settings_;
  const Stagings& stagings_;
  ClientCounters& counters_;
  std::thread thread_;

  std::mutex mutex_;  // of all that follows but the atomics
  std::condition_variable changed_;
  bool wanted_ = true;  // a connection
  bool ending_ = false;
  bool final_ = false;      // the last answer was a refusal that stays
  unsigned failures_ = 0;   // in a row; a connection that served no lookup is one too
  std::string text_ = "no attempt to connect has ended yet";
  std::string said_;  // on stderr
  std::unique_ptr<Connection> offered_;
  std::unique_ptr<Connection> dead_;  // freed by this thread, which may take its time
  std::mt19937_64 random_;

  std::atomic<bool> offers_{false};     // published after offered_
  std::atomic<bool> connected_{false};
};

}  // namespace engram
