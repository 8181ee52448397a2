-- Note that the request of a lease may have left, or that it has not. ARGV: time, packed c16 fingerprint and I4 token,
-- 1 or 0. Returns 1, or 0 if the lease is lost and nothing was changed.

insist()
local fingerprint, token = unpack_from('>c16I4', ARGV[2])
local row = read_row(fingerprint)
if not row or row.state ~= IN_PROGRESS or row.token ~= token or row.at <= now then return 0 end
row.reason = ARGV[3] == '1' and SENT or ''
write_row(row)
flush()
return 1
