#!/bin/sh
# Certificates for the interconnect of a cluster: a CA for this cluster alone, and a certificate of it for each node.
#   deploy/cluster/certificates.sh DIRECTORY a b c
# What is there is kept, so that it can be run again for another node. Keep ca.key.pem away from the nodes.
set -eu
umask 077
directory=$1
shift
mkdir -p "$directory"
cd "$directory"
days=3650
if [ ! -e ca.pem ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days "$days" -subj "/CN=penstock interconnect CA" \
        -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" -keyout ca.key.pem -out ca.pem
fi
for name in "$@"; do
    if [ ! -e "$name.pem" ]; then
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" -keyout "$name.key.pem" -out "$name.csr"
        printf 'subjectAltName=DNS:%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$name" > "$name.extensions"
        openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key.pem -CAcreateserial -days "$days" \
            -extfile "$name.extensions" -out "$name.pem"
        rm "$name.csr" "$name.extensions"
    fi
done
