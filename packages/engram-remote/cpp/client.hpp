// The client as its users see it: checks what they ask for, and owns the parts that do it.
//
//   Client --- Tickets, Handovers ---> Proxy (thread) --- Serving ---> Connection, or ShardSet
//                                                            ^
//                                      Connector (thread) ---+  hands connections over
//
// Lock order: none is held while another is taken, but Proxy's registering_ before its mutex_ or that of Tickets.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "client_connector.hpp"
#include "client_counters.hpp"
#include "client_serving.hpp"
#include "client_settings.hpp"
#include "client_tickets.hpp"
#include "proxy.hpp"

namespace engram {

class Client {
 public:
  static Outcome create(const engram_client_options& options, std::unique_ptr<Client>& client);
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Outcome add_staging(void* base, std::size_t bytes, std::uint32_t& index);
  Outcome enqueue(std::span<const engram_batch> batches, std::uint32_t staging, std::uint64_t& ticket);
  Outcome wait(std::uint64_t ticket, Nanoseconds deadline, engram_result& result);
  Outcome attach(engram_handover* block, std::uint32_t rows_max, std::uint32_t layer, std::uint32_t staging);
  bool connected(std::string& text);
  const ClientCounters& counters() const noexcept { return counters_; }
  std::string describe_shards() const { return serving_->describe_shards(); }
  void close() noexcept;

  // True in a child of fork(): only `abandon` is allowed.
  bool foreign() const noexcept;
  void abandon() noexcept;

 private:
  explicit Client(ClientSettings settings);
  Outcome start();
  Outcome check(std::span<const engram_batch> batches, std::uint64_t& rows) const;
  Outcome use_staging(std::uint32_t index, std::size_t bytes, bool handover);

  enum class Use : std::uint8_t { none, tickets, handover };

  const ClientSettings settings_;
  const std::uint32_t fork_generation_;
  ClientCounters counters_;
  Stagings stagings_;
  std::mutex closing_;  // one caller of close at a time, each until it is done
  std::mutex using_;
  std::array<Use, kStagingsMax> uses_{};
  Tickets tickets_;
  Handovers handovers_;
  std::unique_ptr<Connector> connector_;
  std::unique_ptr<Serving> serving_;
  std::unique_ptr<Proxy> proxy_;
};

}  // namespace engram
