// Several listeners, many connections, one consumer of events.
//
// Who runs the loop: one thread at a time *leads* it.  A consumer inside `next` leads, so a request reaches it with no
// hand-off between threads.  While the consumer is away the keeper thread takes over within kTakeover, so heartbeats,
// negotiations and unsent replies go on however long the consumer computes.  A returning consumer asks the keeper to
// step down and waits for it: one bounded turn.
//
// Lock order: answered_, then leader_mutex_, then table_mutex_, then a connection's mutex, then the event queue's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "connection.hpp"
#include "gate.hpp"
#include "recent.hpp"
#include "server_shared.hpp"
#include "socket.hpp"
#include "status.hpp"

namespace ofl {

class Server {
 public:
  static Outcome create(const ServerOptions& options, std::unique_ptr<Server>& server);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // host: an address, or a name of this host for shared memory.
  Outcome listen(wire::Transport transport, const std::string& host, std::uint16_t port, std::uint16_t& bound_port);
  Outcome register_memory(Memory& memory);
  Status next(Nanoseconds deadline, ofl_event& event);
  Status reply(std::uint64_t connection, std::uint64_t sequence, std::span<const Part> parts, Memory* lent);
  // Until no reply under way reads the memory.
  Status idle(Memory& memory, Nanoseconds deadline);
  Status disconnect(std::uint64_t connection, const std::string& reason);
  void wake();
  const Counters& counters() const noexcept { return shared_.counters; }
  void close();

  bool foreign() const noexcept;
  void abandon() noexcept;  // in a child of fork(): closes its descriptors, leaves the rest

 private:
  enum class Leader : std::uint8_t { none, consumer, keeper };
  struct Listener {
    UniqueFd socket;
    wire::Transport transport = wire::Transport::tcp;
    std::string name;  // of shared memory
    Address address;   // of RDMA
    Registrar* registrar = nullptr;  // of the device that carried it when that was last asked; nullptr: not RDMA
  };

  static constexpr Nanoseconds kTakeover = 10 * kMillisecond;
  static constexpr std::size_t kEventsMax = 4096;  // queued events at which accepting stops

  explicit Server(const ServerOptions& options);

  // The consumer.
  bool take_wake() noexcept;
  bool take_event(ofl_event& out);
  bool take_request(Event& event);
  bool take_direct(ofl_event& out);
  void hand_out(Event& event, ofl_event& out);
  bool take_lead(Leader who) noexcept;
  void lead_as_consumer();
  void stop_leading() noexcept;
  Status lead_until(Nanoseconds deadline, ofl_event& event);

  // The keeper.
  void keep();
  bool keeper_may_lead();
  void kick() noexcept;
  void call_keeper();

  // The leader.
  void turn(Nanoseconds deadline, Nanoseconds spin_ends);
  bool turn_as_keeper() noexcept;
  bool look(Nanoseconds spin_ends);
  void poll_cheap();
  bool arm_cheap();
  void wait_and_handle(int timeout_ms);
  bool wanted_elsewhere() const noexcept;
  void handle(std::uint64_t tag, std::uint32_t events);
  void look_at_hot();
  // False: the connection has ended and is gone.
  bool handle_connection(const std::shared_ptr<Connection>& connection, std::uint32_t events);
  bool after_reading(const std::shared_ptr<Connection>& connection, bool alive, const Interest& before, bool fresh);
  void accept_from(const Listener& listener);
  void adopt(UniqueFd socket, const Listener& listener);
  std::shared_ptr<Connection> add(UniqueFd socket, const Listener& listener, const Address& address);
  bool welcome(const UniqueFd& socket, const Listener& listener, const Address& peer);
  void shed_one(const UniqueFd& listener);
  bool switch_wire(const std::shared_ptr<Connection>& connection) noexcept;
  void evict_oldest();
  void evict(const std::shared_ptr<Connection>& connection);
  void sweep(Nanoseconds now);
  void note_due(Connection& connection);
  void drop(const std::shared_ptr<Connection>& connection) noexcept;
  void pause_listeners(bool pause);
  void update_interest(Connection& connection);

  std::vector<Registrar*> registrars();
  void say_farewell() noexcept;
  void wait_for_goodbyes();
  Status reply_by(Connection& connection, std::uint64_t sequence, std::span<const Part> parts, Memory* lent);
  std::shared_ptr<Connection> find(std::uint64_t id);
  std::vector<std::shared_ptr<Connection>> all_connections();

  ServerShared shared_;
  const std::uint32_t fork_generation_;
  UniqueFd epoll_;
  UniqueFd wake_;

  std::mutex leader_mutex_;
  std::condition_variable leader_changed_;
  // Taken by whoever finds nobody there; the keeper gives it back under leader_mutex_, where a consumer waits for it.
  std::atomic<Leader> leader_{Leader::none};
  std::atomic<int> claims_{0};   // consumers that wait for the lead
  bool keeper_called_ = false;   // there is work that must not wait for kTakeover
  std::atomic<Nanoseconds> consumer_left_{0};
  std::atomic<bool> stopping_{false};

  // The leader's own.
  std::vector<std::shared_ptr<Connection>> cheap_;  // may be polled without a system call
  std::shared_ptr<Connection> hot_;                 // the socket connection that spoke last
  Nanoseconds sweep_due_;
  Nanoseconds now_ = 0;  // as last read: in a loop that looks, a few looks ago
  Nanoseconds looked_at_all_ = 0;  // when it was asked which descriptors are ready
  std::uint64_t next_id_ = 1;
  UniqueFd spare_;  // given up to shed a connection when descriptors run out
  bool listeners_paused_ = false;

  std::mutex table_mutex_;
  std::condition_variable dropped_;  // a connection left the table
  std::unordered_map<std::uint64_t, std::shared_ptr<Connection>> connections_;
  std::deque<Listener> listeners_;  // only grows; a deque keeps references valid

  Recent<Connection> answered_;

  Gate gate_;

  std::atomic<bool> woken_{false};
  std::atomic<bool> consuming_{false};
  bool eager_ = false;  // the consumer's: a request was handed out, so another may follow at once
  Body lent_;  // the small body that the last `next` handed out
  std::thread keeper_;
};

}  // namespace ofl
