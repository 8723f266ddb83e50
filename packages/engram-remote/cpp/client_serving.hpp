// How one lookup is served: by the server while a connection is open, else by the local shards.  Belongs to the proxy
// thread; owns the connection.
//
// Staging is written by one of the two at a time.  Between them stands `drop`: the connection is ended, after which the
// server can write nothing, before the shards may.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "client_connection.hpp"
#include "client_connector.hpp"
#include "client_counters.hpp"
#include "shard_set.hpp"

namespace engram {

struct Served {
  Outcome outcome;  // ENGRAM_FAILED: the planes hold 0xFF throughout, which is no number in either format
  engram_result result{};
};

class Serving {
 public:
  // connector: nullptr without a server.
  Serving(const ClientSettings& settings, const Stagings& stagings, ClientCounters& counters,
          std::unique_ptr<ShardSet> shards, Connector* connector);
  ~Serving();

  void adopt(std::unique_ptr<Connection> connection);
  Served serve(const ClientLookup& lookup, Staging& staging) noexcept;
  // Takes a new connection over, and gives a lost one back.
  void upkeep();
  // The one that is to be added next, with the connection that there is; the text names the limit that was met.
  Outcome register_next(const Staging& staging);
  // Every lookup from here on is local.
  void close();
  void abandon() noexcept;  // after fork(), in the child
  std::string describe_shards() const { return shards_->describe(); }

 private:
  Reason remote(const ClientLookup& lookup, Staging& staging, Nanoseconds deadline, Served& served) noexcept;
  void local(const ClientLookup& lookup, Staging& staging, Reason reason, Served& served);
  void spoil(const ClientLookup& lookup, Staging& staging) const noexcept;
  void drop(const std::string& why);

  const ClientSettings& settings_;
  const Stagings& stagings_;
  ClientCounters& counters_;
  const std::unique_ptr<ShardSet> shards_;
  Connector* const connector_;
  std::unique_ptr<Connection> connection_;
  std::atomic<Connection*> for_child_{nullptr};  // the same, cleared before it goes
  std::vector<ShardBatch> batches_;              // of the lookup under way
  bool closing_ = false;
};

}  // namespace engram
