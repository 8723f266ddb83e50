// One connection to the server on which OPEN has succeeded, and the lookups on it.
//
// Whoever holds it uses it alone: the connector until it hands it over, then the proxy.  `end` may be called once or many
// times; after it nothing of the peer's can reach staging any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "client_frame.hpp"
#include "client_settings.hpp"
#include "client_staging.hpp"
#include "ofl_library.hpp"

namespace engram {

class Connection {
 public:
  // Connects, agrees, registers what staging there is, and opens; all before the deadline.  final: asking again changes
  // nothing.
  static Outcome open(const ClientSettings& settings, const Stagings& stagings, Nanoseconds deadline,
                      std::unique_ptr<Connection>& connection, bool& final);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Staging that was added since.  The text names the limit that was met.
  Outcome register_new(const Stagings& stagings);
  // One that is not among them yet: where it succeeds, it must be added as the next.  As above.
  Outcome register_next(const Staging& staging);

  struct Answer {
    Reason reason = Reason::none;  // none: the rows are in staging
    std::uint64_t out_of_shard = 0;
    std::size_t bytes = 0;  // of the reply
  };
  // On any other reason than `none` the connection may still write to staging, until `end`.
  Answer lookup(const ClientLookup& lookup, Staging& staging, Nanoseconds deadline) noexcept;

  bool alive() const noexcept { return ofl().client_alive(client_) != 0; }
  const std::string& wire() const noexcept { return wire_; }
  std::string why_lost() const;
  void end() noexcept { ofl().client_close(client_); }
  // In a child of fork(): closes the child's descriptors, and leaves the parent's connection.
  void abandon() noexcept { ofl().client_free(client_); }

  bool proved = false;  // a lookup has succeeded on it

 private:
  explicit Connection(const ClientSettings& settings) : settings_(settings) {}
  Outcome connect(Nanoseconds deadline);
  Outcome make_request_buffer();
  Outcome exchange_open(Nanoseconds deadline, bool& final);
  std::int32_t submit(const ofl_part& part, const ofl_call_options* options, Nanoseconds deadline, std::uint64_t& sequence);
  std::int32_t wait(std::uint64_t sequence, Nanoseconds deadline, std::span<const std::byte>& body);
  void cancel(std::uint64_t sequence) noexcept;

  const ClientSettings& settings_;
  ofl_client* client_ = nullptr;
  ofl_buffer* request_ = nullptr;  // one lookup at a time is under way, so its request needs one place
  std::uint64_t batch_ = 0;
  std::uint64_t open_sum_ = 0;  // of OPEN, with checksums
  std::size_t registered_ = 0;  // stagings, from the first on
  std::string wire_;
};

}  // namespace engram
