#!/usr/bin/env bash
# MariaDB's type UUID refuses some UUIDs of version 8, and INSERT IGNORE keeps the nil UUID in their place.
#
# Seen in 10.11.19: a text of version 8 to 15 is refused (error 1292) where the byte of the variant, the ninth, is
# exactly 0x80. RFC 9562 (section 5.8) leaves the 6 bits behind the variant to whoever makes a UUID of version 8, so
# 0x80 is one of 64 values. Versions 1 to 7 are taken with it. With INSERT IGNORE each such row is kept with the same
# nil UUID and a warning, so different ids become one.
#
# Downloads one pinned package of Debian 12 into a temporary folder and runs the server in it on a few statements,
# without a port. Fails if the behaviour or the version is another.
set -euo pipefail

version=1:10.11.19-0+deb12u1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download -qq "mariadb-server-core=$version"
dpkg -x mariadb-server-core_*.deb root
mkdir data
cat >statements.sql <<SQL
CREATE DATABASE ids;
CREATE TABLE ids.taken (id UUID NOT NULL);
INSERT IGNORE INTO ids.taken VALUES ('04e20cb5-8204-7000-8000-000000000000');
INSERT IGNORE INTO ids.taken VALUES ('04e20cb5-8204-8000-8100-000000000000');
INSERT IGNORE INTO ids.taken VALUES ('04e20cb5-8204-8000-8000-000000000000');
INSERT IGNORE INTO ids.taken VALUES ('04e20cb5-8204-8000-8000-000000000001');
SELECT id FROM ids.taken ORDER BY id INTO OUTFILE '$folder/kept';
INSERT INTO ids.taken VALUES ('04e20cb5-8204-8000-8000-000000000000');
SQL
# What ends the run is the last statement.
root/usr/sbin/mariadbd --no-defaults --user="$(id -un)" --bootstrap --datadir="$folder/data" \
    --lc-messages-dir="$folder/root/usr/share/mysql" --character-sets-dir="$folder/root/usr/share/mysql/charsets" \
    <statements.sql >log 2>&1 || true

printf '%s\n' 00000000-0000-0000-0000-000000000000 00000000-0000-0000-0000-000000000000 \
    04e20cb5-8204-7000-8000-000000000000 04e20cb5-8204-8000-8100-000000000000 >expected
root/usr/sbin/mariadbd --no-defaults --version
echo "kept of four different UUIDs, by INSERT IGNORE:"
cat kept
grep "Incorrect uuid value: '04e20cb5-8204-8000-8000-000000000000'" log
diff kept expected
echo "as described"
