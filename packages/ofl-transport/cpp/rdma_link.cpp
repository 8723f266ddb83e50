// From a negotiated control socket to a connected queue pair, and what a host can say about RDMA beforehand.

#include "link.hpp"

#include <algorithm>
#include <cstring>

#include "gid_choice.hpp"
#include "rdma_terms.hpp"

#ifdef OFL_VERBS
#include "rdma_channel.hpp"
#endif

namespace ofl {

#ifdef OFL_VERBS

namespace {

class RdmaLink final : public Link {
 public:
  Outcome open(Role role, int control, std::uint32_t frame_bytes_max) override;
  std::span<const std::byte> ours() const noexcept override { return std::as_bytes(std::span(&body_, 1)); }
  Outcome join(std::span<const std::byte> theirs, std::span<UniqueFd> descriptors) override;
  Outcome finish(UniqueFd control, std::unique_ptr<Channel>& channel) override;

 private:
  Role role_ = Role::client;
  Gid peer_{};
  wire::RdmaLinkBody body_{};
  RdmaTerms terms_;
  std::unique_ptr<QueuePair> queue_pair_;
};

Outcome RdmaLink::open(Role role, int control, std::uint32_t frame_bytes_max) {
  static_cast<void>(frame_bytes_max);  // segments do not depend on it
  role_ = role;
  peer_ = gid_of(peer_address(control));
  RdmaPort port;
  Outcome outcome = find_rdma_port(local_address(control), port);
  if (outcome) outcome = QueuePair::create(port, role, queue_pair_);
  if (outcome) body_ = queue_pair_->ours();
  return outcome;
}

Outcome RdmaLink::join(std::span<const std::byte> theirs, std::span<UniqueFd> descriptors) {
  if (!descriptors.empty()) return failure(OFL_REFUSED, "descriptors came with an RDMA link frame");
  wire::RdmaLinkBody body{};
  if (theirs.size() != sizeof body) return failure(OFL_REFUSED, "body_bytes does not fit an RDMA link frame");
  std::memcpy(&body, theirs.data(), sizeof body);
  if (const char* clause = rdma_link_fault(body, peer_)) return failure(OFL_REFUSED, clause);
  terms_ = {std::min(body.segment_bytes, body_.segment_bytes), body.receives};
  return queue_pair_->connect(body);
}

Outcome RdmaLink::finish(UniqueFd control, std::unique_ptr<Channel>& channel) {
  return RdmaChannel::create(std::move(queue_pair_), std::move(control), role_, terms_, channel);
}

std::string limits_text(const RdmaPort& port) {
  const ibv_device_attr& limits = port.device->limits();
  return ", path MTU " + std::to_string(port.mtu_bytes) + ", largest registration " + std::to_string(limits.max_mr_size) +
         " bytes, registrations " + std::to_string(limits.max_mr) + ", queue pairs " + std::to_string(limits.max_qp);
}

}  // namespace

std::unique_ptr<Link> make_rdma_link() { return std::make_unique<RdmaLink>(); }

Outcome check_rdma_address(const Address& address, Registrar*& registrar) {
  registrar = nullptr;
  RdmaPort port;
  Outcome outcome = address.wildcard() ? find_any_rdma_device(port.device) : find_rdma_port(address, port);
  if (outcome) registrar = port.device;
  return outcome;
}

Outcome explain_rdma_address(const Address& address, std::string& text) {
  RdmaPort port;
  Outcome outcome = find_rdma_port(address, port);
  if (outcome) text = port.choice.reason + limits_text(port);
  return outcome;
}

Outcome rdma_available() {
  RdmaDevice* device = nullptr;
  return find_any_rdma_device(device);
}

#else

namespace {

Outcome not_built() {
  return failure(OFL_INVALID,
                 "this build has no RDMA: the headers of libibverbs were not there when it was compiled (Debian: "
                 "libibverbs-dev)");
}

class NoRdmaLink final : public Link {
 public:
  Outcome open(Role, int, std::uint32_t) override { return not_built(); }
  std::span<const std::byte> ours() const noexcept override { return {}; }
  Outcome join(std::span<const std::byte>, std::span<UniqueFd>) override { return not_built(); }
  Outcome finish(UniqueFd, std::unique_ptr<Channel>&) override { return not_built(); }
};

}  // namespace

std::unique_ptr<Link> make_rdma_link() { return std::make_unique<NoRdmaLink>(); }

Outcome check_rdma_address(const Address&, Registrar*& registrar) {
  registrar = nullptr;
  return not_built();
}

Outcome explain_rdma_address(const Address&, std::string&) { return not_built(); }

Outcome rdma_available() { return not_built(); }

#endif

}  // namespace ofl
