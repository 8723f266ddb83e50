// RDMA in a build without the headers of libibverbs: every way in says so.

#include "link.hpp"

namespace ofl {

namespace {

Outcome absent() {
  return failure(OFL_SYSTEM, "this build of libofl.so has no RDMA: it was made without the headers of libibverbs");
}

class AbsentLink final : public Link {
 public:
  Outcome open(Role, int, std::uint32_t) override { return absent(); }
  std::span<const std::byte> ours() const noexcept override { return {}; }
  Outcome join(std::span<const std::byte>, std::span<UniqueFd>) override { return absent(); }
  Outcome finish(UniqueFd, std::unique_ptr<Channel>&) override { return absent(); }
};

}  // namespace

std::unique_ptr<Link> make_rdma_link() { return std::make_unique<AbsentLink>(); }
Outcome check_rdma_address(const Address&, Registrar*&) { return absent(); }
Outcome explain_rdma_address(const Address&, std::string&) { return absent(); }
Outcome rdma_available() { return absent(); }

}  // namespace ofl
