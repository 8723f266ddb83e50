// The table service: one thread receives and decides, it answers small lookups itself, a pool gathers the others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "clock.hpp"
#include "gather_pool.hpp"
#include "reply.hpp"
#include "reply_buffers.hpp"
#include "request.hpp"
#include "server_counters.hpp"
#include "server_lookup.hpp"
#include "server_tables.hpp"
#include "status.hpp"

namespace engram {

// As engram_server_options, with what it points to copied.
struct ServerOptions {
  std::optional<std::string> key_file;
  std::vector<std::string> allowed;
  bool allow_any = false;
  Identity identity{};
  std::uint32_t columns = 0;
  std::uint32_t scales = 0;
  std::uint32_t gather_threads = 0;
  std::uint32_t connections_max = 0;
  std::uint32_t batch_rows_max = 0;
  std::uint32_t calls_max = 0;
  std::uint32_t reply_buffers = 0;
  Nanoseconds spin = 0;
};

class Server {
 public:
  static Outcome create(const ServerOptions& options, std::unique_ptr<Server>& server);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  bool foreign() const noexcept;
  Outcome add_table(const Table& table);
  Outcome listen(std::uint32_t transport, const char* host, std::uint16_t port, std::uint16_t& bound_port);
  // Reply buffers and threads.  After the last listener; run does it where nobody did.
  Outcome prepare();
  Outcome run();
  void stop() noexcept;
  const ServerCounters& counters() const noexcept { return counters_; }
  std::string statistics() const;

 private:
  struct FreeServer {
    void operator()(ofl_server* server) const noexcept { ofl().server_free(server); }
  };
  using Sessions = std::unordered_map<std::uint64_t, std::shared_ptr<Session>>;

  explicit Server(const ServerOptions& options);
  Outcome make_transport();
  void turn(Nanoseconds deadline, bool& idle);
  void drain();
  void handle(ofl_event& event);
  void request(ofl_event& event);
  std::optional<Fault> dispatch(const ofl_event& event, const wire::Header& header, Bytes body, OwnedBody& owned);
  std::optional<Fault> open(const ofl_event& event, const wire::Header& header, Bytes body);
  std::optional<Fault> lookup(const ofl_event& event, const wire::Header& header, Bytes body, OwnedBody& owned);
  std::optional<Fault> check_lookup(const LookupView& view, const Session& session) const;
  bool answer_inline(Lookup& lookup);
  void finish(Lookup& lookup);
  void send_rows(Lookup& lookup);
  void refuse(std::uint64_t connection, std::uint64_t sequence, const Address& to, const Fault& fault);
  void send(std::uint64_t connection, std::uint64_t sequence, const Message& message);

  const ServerOptions options_;
  const std::uint32_t fork_generation_;
  const std::uint64_t boot_;
  const Nanoseconds created_;
  ServerCounters counters_;
  Tables tables_;
  std::unique_ptr<ofl_server, FreeServer> transport_;
  ReplyBuffers buffers_;
  GatherPool pool_;
  Sessions sessions_;
  Lookup inline_;  // the receiver's own, used again and again
  bool prepared_ = false;
  std::atomic<bool> running_{false};
  std::atomic<Nanoseconds> stop_at_{0};  // when it was asked to stop; 0: it was not
};

}  // namespace engram
